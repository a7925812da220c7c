"""Offer: the backends that a network may be placed on, and the estimator of their costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collage import plugins
from collage.accuracy.allowance import Wish
from collage.annotations.precision import FLOAT32, LESS_PRECISE
from collage.api.effort import Effort
from collage.backends.base import Backend
from collage.backends.resolve import available_backends, resolve_on
from collage.cost.estimator import CostEstimator
from collage.cost.transition import Pair, Transition, completed
from collage.measure.boards import Board
from collage.measure.copies import copy_costs
from collage.measure.transitions import transition_costs
from collage.measure.workers import Workers
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.runtime.device_info import describe_device
from collage.search.crossings import Crossings


@dataclass(frozen=True)
class Offered:
    """Backends and an estimator that knows them.

    Attributes
    ----------
    devices
        The first one has the inputs and results.
    backends
        By name.
    notes
        On the backends and estimators that were passed over.
    """

    devices: tuple[str, ...]
    threads: int
    backends: Mapping[str, Backend]
    estimator: CostEstimator
    notes: tuple[str, ...]

    def transitions(self, database: RecordDatabase, reporter: Reporter) -> dict[Pair, Transition]:
        """The cost of passing a tensor from one backend to another of the same device, for each ordered pair."""
        found: dict[Pair, Transition] = {}
        for device in self.devices:
            own = {name: backend for name, backend in self.backends.items() if backend.device == device}
            # Less precise backends take and give float32 on the threads of their engine: they are charged like it.
            exact = {name: backend for name, backend in own.items() if not backend.is_less_precise} or own
            known = self.estimator.transitions(list(exact), self.threads)
            if known is None:
                known = transition_costs(
                    list(exact.values()), self.threads, database, reporter, self.estimator.uses_device
                )
            found |= completed(known, {name: backend.pool for name, backend in own.items()})
        return found

    def crossings(self) -> Crossings | None:
        """What copies between the devices cost; None where there is one device."""
        if len(self.devices) == 1:
            return None
        copies = self.estimator.copies(self.devices)
        if copies is None:
            copies = copy_costs(self.devices)
        return Crossings(self.devices[0], {name: backend.device for name, backend in self.backends.items()}, copies)


def offer(
    backends: Sequence[str | Backend] | None,
    estimator: str | CostEstimator | None,
    parameters: Mapping[str, Any],
    effort: Effort,
    devices: tuple[str, ...],
    threads: int,
    wish: Wish | None,
    database: RecordDatabase,
    reporter: Reporter,
    workers: Workers | None = None,
    board: Board | None = None,
) -> Offered:
    """The backends and the estimator of a run, with notes on those that were passed over.

    Parameters
    ----------
    backends
        Names or instances; None is all that are available, of the precisions of the wish.
    estimator
        A name or an instance; None is the effort's.
    parameters
        Of the estimator's constructor.
    devices
        The first one has the inputs and results.
    threads
        Number of threads of the deployment.
    wish
        The error budget; None is float32 alone.
    board
        Where the plan runs; only backends that have a runtime there are offered, and costs are measured.

    Raises
    ------
    PluginError
        A name is unknown, or a plug-in does not load.
    BackendUnavailableError
        A backend was asked for and cannot be used here, or none can.
    """
    available = resolve_on(backends, devices, (FLOAT32,) if wish is None else wish.precisions)
    passed_over: tuple[str, ...] = ()
    if board is not None:
        available, passed_over = board.backends(available)
        workers, estimator = board, estimator or "measured"
    chosen: CostEstimator
    if estimator is None:
        # Costs of less precision are measured where no model knows them.
        exact = [name for name, backend in available.items() if not backend.is_less_precise]
        spending = effort if wish is None else effort.measuring
        chosen, passed_over = spending.estimator(describe_device(devices[0]), exact, threads, parameters)
    else:
        chosen = plugins.load("estimators", estimator, **parameters)
    chosen = chosen.bind(database, reporter)
    if workers is not None:
        chosen = chosen.on(workers)
    # Where nothing is known of any of them, the estimator itself says so when it is asked.
    known = {name: backend for name, backend in available.items() if chosen.knows(name)} or dict(available)
    left_out = (
        f"{type(chosen).__name__} knows no costs of {name}, which was left out: train it on records of that "
        "backend, or choose another estimator"
        for name in available
        if name not in known
    )
    notes = (
        *passed_over,
        *left_out,
        *(_less_precise(devices) if wish is None and backends is None and board is None else ()),
    )
    return Offered(devices, threads, known, chosen, notes)


def _less_precise(devices: Sequence[str]) -> Iterator[str]:
    """A note that backends of lower precision run here, too: an engine's own default may be one of them."""
    names = [backend.name for backend in available_backends("cpu", LESS_PRECISE)] if tuple(devices) == ("cpu",) else []
    if names:
        yield (
            f"all is computed in float32; an error budget (--max-error, max_error) allows {', '.join(names)}, too; "
            "engines left to themselves may use less precision without asking"
        )
