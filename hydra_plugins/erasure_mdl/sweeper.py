"""Hydra's sweeper without its check of every job, which would take minutes for thousands."""

from collections.abc import Sequence

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper


class Sweeper(BasicSweeper):
    """The product of all choices on the command line. Launchers check each job themselves, in milliseconds."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        pass
