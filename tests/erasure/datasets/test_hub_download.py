"""Hugging Face datasets fetched from a stand-in for the hub: whole or not there, verified, repaired."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from erasure.dataset import MissingDataError
from erasure.datasets import hub_download
from erasure.fetch_errors import FetchError
from tests.erasure.datasets.test_hf import source, write_cifarnet


class Hub:
    """Stands for huggingface_hub: one repository, whose download can be made to fail in the middle."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.fails, self.fetched = folder, False, []
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: self)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.snapshot_download)

    def dataset_info(self, repository: str, *, revision: str | None, files_metadata: bool) -> SimpleNamespace:
        assert files_metadata
        files = [
            SimpleNamespace(rfilename=name, lfs=SimpleNamespace(sha256=digest) if name.endswith("parquet") else None)
            for name, digest in hub_download.checksums(self.folder).items()
        ]
        return SimpleNamespace(sha="c0ffee", siblings=files)

    def snapshot_download(self, repository: str, *, repo_type: str, revision: str, local_dir: Path) -> None:
        assert (repository, repo_type, revision) == ("EleutherAI/cifarnet", "dataset", "c0ffee")
        (local_dir / ".cache" / "huggingface").mkdir(parents=True, exist_ok=True)
        for name, digest in hub_download.checksums(self.folder).items():
            if (local_dir / name).exists() and hub_download.checksums(local_dir / name)[Path(name).name] == digest:
                continue
            (local_dir / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.folder / name, local_dir / name)
            self.fetched.append(name)
            if self.fails:
                raise ConnectionError("the network is gone")


def test_a_hub_dataset_is_whole_or_not_there(tmp_path: Path, monkeypatch) -> None:
    images, _ = write_cifarnet(tmp_path / "published")
    server = Hub(tmp_path / "published", monkeypatch)
    root = tmp_path / "data"
    cifarnet = source("EleutherAI/cifarnet", root=str(root))
    missing = f"dataset EleutherAI/cifarnet is not in {root}/EleutherAI--cifarnet: fetch\\(\\) brings it"
    with pytest.raises(MissingDataError, match=missing):
        cifarnet.identity()
    server.fails = True
    with pytest.raises(FetchError, match=r"could not be fetched \(the network is gone\): check the network"):
        cifarnet.fetch()
    with pytest.raises(MissingDataError, match=missing):
        cifarnet.load()
    server.fails = False
    cifarnet.fetch()
    assert len(server.fetched) == len(set(server.fetched)) == 4  # it continued where it was
    assert len(cifarnet.load().train) == len(images)
    assert cifarnet.identity() == source(tmp_path / "published").identity()
    assert sorted(path.name for path in root.iterdir()) == ["EleutherAI--cifarnet"]


def test_a_damaged_hub_dataset_is_noticed_and_repaired(tmp_path: Path, monkeypatch) -> None:
    write_cifarnet(tmp_path / "published")
    server = Hub(tmp_path / "published", monkeypatch)
    cifarnet = source("EleutherAI/cifarnet", root=str(tmp_path / "data"))
    cifarnet.fetch()
    before = cifarnet.identity()
    name = "data/train-00001-of-00002.parquet"
    shard = tmp_path / "data" / "EleutherAI--cifarnet" / name
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(MissingDataError, match=r"00001-of-00002\.parquet is damaged .*: fetch\(\) brings it"):
        cifarnet.load()
    shard.unlink()
    killed = tmp_path / "data" / "EleutherAI--cifarnet" / ".SHA256SUMS.ab12.tmp"
    killed.mkdir()
    with pytest.raises(MissingDataError, match=r"00001-of-00002\.parquet is missing: fetch\(\) brings it"):
        cifarnet.load()
    server.fetched.clear()
    cifarnet.fetch()
    assert server.fetched == [name]
    assert not killed.exists()
    assert len(cifarnet.load().train) == 30
    assert cifarnet.identity() == before


def test_what_the_hub_does_not_have_is_refused(tmp_path: Path, monkeypatch) -> None:
    write_cifarnet(tmp_path / "published")
    server = Hub(tmp_path / "published", monkeypatch)
    honest = server.dataset_info("", revision=None, files_metadata=True)
    honest.siblings[1].lfs.sha256 = "0" * 64
    monkeypatch.setattr(server, "dataset_info", lambda *_, **__: honest)
    with pytest.raises(FetchError, match="of EleutherAI/cifarnet differs from the file on the hub"):
        source("EleutherAI/cifarnet", root=str(tmp_path / "data")).fetch()
    assert not (tmp_path / "data" / "EleutherAI--cifarnet").exists()


def test_one_s_own_folder_is_never_fetched_or_touched(tmp_path: Path, monkeypatch) -> None:
    write_cifarnet(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", None)
    before = sorted(tmp_path.rglob("*"))
    source(tmp_path).fetch()
    source(tmp_path).load()
    assert sorted(tmp_path.rglob("*")) == before
