"""A stand-in for what starts, leaves and stops timing processes (`collage.measure.runner.Runner`): there is none."""

from __future__ import annotations

from typing import Any


class NoProcess:
    """Whoever inherits it measures."""

    def start(self) -> None:
        """Nothing has to come up."""

    def take_over(self) -> None:
        """Nobody has left any."""

    def leave(self) -> None:
        """Nobody would take it over."""

    def close(self) -> None:
        """Nothing has to be stopped."""

    def __enter__(self) -> NoProcess:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
