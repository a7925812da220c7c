"""Reporter: how long steps report their progress.

The base class is silent; the command line has one with a progress bar.
"""

from __future__ import annotations


class Reporter:
    """Told of stages and steps; overridden by whoever wants to show them."""

    def stage(self, name: str, total: int | None = None) -> None:
        """A new stage begins; `total` steps, None when that is not known."""

    def step(self, label: str, count: int = 1) -> None:
        """`count` steps of the stage are done; `label` says what comes next."""

    def note(self, line: str) -> None:
        """Something that the user should know."""

    def finish(self) -> None:
        """The last stage is done, too."""

    def close(self) -> None:
        """Nothing follows; whether the last stage was done is not known."""
