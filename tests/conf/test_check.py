"""Types of keyword-only arguments, and the nearest key to an unknown one."""

from conf.check import keyword_only, unknown_key
from train.settings import TrainSettings


def test_keyword_only_arguments_of_a_dataclass_and_unknown_keys() -> None:
    assert keyword_only(TrainSettings)["lr"] is float
    assert unknown_key("zzz", ["lr"]) == "unknown key zzz: choose from lr"
    assert unknown_key("ALF-QLEACE", ["alf_qleace", "leace"]).startswith("unknown key ALF-QLEACE: did you mean alf_q")
    assert unknown_key("lrr", ["lr", "b"]) == "unknown key lrr: did you mean lr? choose from b, lr"
