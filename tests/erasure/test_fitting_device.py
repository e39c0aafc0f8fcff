"""The device on which an eraser is fitted."""

import pytest
import torch

from erasure import LeaceEraser, QleaceEraser
from erasure.fitting_device import fitting_device

GPU, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Gigabytes free of each kind of device."""
    left = {"cuda": 80.0, "cpu": 24.0}
    monkeypatch.setattr("erasure.fitting_device.free_bytes", lambda device: 1e9 * left[device.type])
    return left


def test_what_fits_is_fitted_on_the_device_and_what_does_not_on_the_cpu(free, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert fitting_device(QleaceEraser, 3072, 10, GPU) == GPU
    free["cuda"] = 1
    assert fitting_device(QleaceEraser, 3072, 10, GPU) == CPU
    assert "QleaceEraser is fitted on the CPU: it needs 3.3 GB in float64" in caplog.text


def test_cifarnet_fits_80_gigabytes_and_what_fits_nowhere_is_refused_before_it_starts(free) -> None:
    """The paper's CIFARNet: 64 x 64 x 3 = 12,288 values, ten classes."""
    assert QleaceEraser.fitting_bytes(12_288, 10) < 60e9
    assert fitting_device(QleaceEraser, 12_288, 10, GPU) == GPU
    free["cpu"] = 32
    assert fitting_device(LeaceEraser, 12_288, 10, CPU) == CPU
    with pytest.raises(ValueError, match="QleaceEraser needs about 53 GB at once for 12,288 values per example"):
        fitting_device(QleaceEraser, 12_288, 10, CPU)


def test_devices_without_float64_leave_it_to_the_cpu(free) -> None:
    assert fitting_device(LeaceEraser, 64, 10, torch.device("mps")) == CPU
