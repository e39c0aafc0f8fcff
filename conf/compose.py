"""Configurations from a list of overrides, for scripts that are not verbs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hydra import compose, initialize_config_dir

from conf.cli import plain
from conf.groups import CONF
from conf.schema import validate


def composed(verb: str, overrides: Sequence[str], sections: Mapping[str, Callable]) -> dict[str, Any]:
    """The checked configuration that `python -m VERB OVERRIDES` would run.

    Args:
        verb: "mdl" or "train".
        overrides: as on the command line, e.g. "dataset=digits".
        sections: as `Verb.sections`.

    Raises:
        HydraException, OmegaConfBaseException, ConfigError: for `conf.errors.explain`.
    """
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return validate(plain(compose(verb, list(overrides))), sections)
