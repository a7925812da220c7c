"""Effort: how much is measured to find a plan, as three named sets of defaults.

    partition(model, effort="quick")
    collage tune MODEL.onnx -o OUT.so --effort thorough

`quick` predicts the latency of candidates; if no cost model is near the machine, it measures as `normal` does, but
less than half as many. `normal` predicts, and measures the candidates that could still change the plan. `thorough`
measures every candidate (docs/SEARCH.md, "Effort"). Explicit arguments (`estimator`, `correction_rounds`) override the
effort.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from collage import plugins
from collage.cost.estimator import CostEstimator
from collage.errors import CollageError
from collage.runtime.device_info import DeviceInfo


@dataclass(frozen=True)
class Effort:
    """One set of defaults.

    Attributes
    ----------
    name
        What the caller writes.
    estimators
        Names of estimators, the best first; the first that serves the machine (`CostEstimator.serves`) is taken.
    parameters
        Estimator -> the parameters that it is made with.
    correction_rounds
        How often, at most, costs are corrected by runs end to end, and the search is repeated.
    race_rounds
        Rounds that plans run for before one of them is chosen; up to three times as many where the order is in doubt.
        Of short calls there are more (`EndToEnd.rounds`).
    final_rounds
        Rounds of fresh samples of the chosen plan, the best other plan and the rivals; likewise.
    """

    name: str
    estimators: tuple[str, ...]
    correction_rounds: int
    race_rounds: int
    final_rounds: int
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, effort: str | Effort) -> Effort:
        """The effort of this name; an `Effort` is returned as it is.

        Raises
        ------
        CollageError
            No effort has this name.
        """
        if isinstance(effort, Effort):
            return effort
        if effort not in EFFORTS:
            raise CollageError(f"no effort is called {effort!r}; valid names: {', '.join(EFFORTS)}")
        return EFFORTS[effort]

    @property
    def measuring(self) -> Effort:
        """The same with estimators that measure what their model does not know."""
        if self.estimators[0] != "learned":
            return self
        return replace(self, estimators=self.estimators[1:])

    def estimator(
        self, device: DeviceInfo, backends: Collection[str], threads: int, given: Mapping[str, Any]
    ) -> tuple[CostEstimator, tuple[str, ...]]:
        """The first estimator that serves a machine, or the last one if none does; and notes on those passed over.

        Parameters
        ----------
        device, backends, threads
            The device, the names of the backends and the number of threads that costs are wanted for.
        given
            Parameters from the caller; they override those of the effort.

        Raises
        ------
        PluginError
            The estimator does not take a parameter.
        """
        passed: list[str] = []
        for name in self.estimators:
            parameters = {**self.parameters.get(name, {}), **given}
            chosen: CostEstimator = plugins.load("estimators", name, **parameters)
            if name == self.estimators[-1] or chosen.serves(device, backends, threads):
                break
            passed.append(name)
        notes = (
            f"the effort {self.name} took the estimator {name}: {other} has no cost model that is near enough to this "
            "machine, backends and threads"
            for other in passed
        )
        return chosen, tuple(notes)


#: How much `active` measures; twice that where its model is of a machine that is not near.
_ACTIVE: Mapping[str, Any] = MappingProxyType({"share": 0.25, "least": 120, "most": 300})
#: Likewise where the user wanted nothing measured: less than half as much, adapting the model included.
_QUICK: Mapping[str, Any] = MappingProxyType({"share": 0.1, "least": 50, "most": 120})

#: The efforts by their names.
EFFORTS: Mapping[str, Effort] = MappingProxyType(
    {
        effort.name: effort
        for effort in (
            Effort(
                "quick",
                ("learned", "active", "measured"),
                correction_rounds=0,
                race_rounds=12,
                final_rounds=9,
                parameters={"active": _QUICK},
            ),
            Effort(
                "normal",
                ("active", "measured"),
                correction_rounds=1,
                race_rounds=20,
                final_rounds=12,
                parameters={"active": _ACTIVE},
            ),
            Effort("thorough", ("measured",), correction_rounds=3, race_rounds=60, final_rounds=31),
        )
    }
)
