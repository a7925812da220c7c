"""PlanSet: plans of one network for several shapes of its inputs, which become one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collage.api.plan import Plan
from collage.compile.model_set import CompiledSet, Dynamic
from collage.errors import PlanError
from collage.frontend import load
from collage.frontend.source import dynamic_onnx
from collage.planned import file
from collage.report.notebook import to_fragment
from collage.report.summary import summarise
from collage.runtime.dynamic import ENGINES


@dataclass(frozen=True)
class PlanSet:
    """Plans of one network.

    Attributes
    ----------
    model
        The network, as `collage.load` takes it.
    plans
        One for each list of shapes; `inputs` of a plan are its shapes.
    """

    model: Any
    plans: tuple[Plan, ...]

    def compile(self) -> CompiledSet:
        """Compile the plans: something to call with any of the shapes, and to export into one file.

        Other shapes run untuned on the first of `collage.runtime.dynamic.ENGINES` that is among the backends, if the
        network is from an ONNX file with dynamic dimensions and runs on the CPU. Otherwise they are refused.

        Raises
        ------
        CodegenError
            A backend cannot compile its partition.
        """
        return CompiledSet(tuple(plan.compile() for plan in self.plans), self._dynamic())

    def _dynamic(self) -> Dynamic | None:
        first = self.plans[0]
        engine = next((name for name in ENGINES if name in first.backends), None)
        found = None if engine is None or first.device != "cpu" else dynamic_onnx(self.model)
        if found is None:
            return None
        model, inputs = found
        return Dynamic(model, {"engine": engine, "threads": first.threads, "inputs": inputs})

    def summary(self, details: bool = True) -> str:
        """Latency and throughput for each list of shapes, and then the summary of each plan."""
        return summarise(*self.plans, details=details)

    def _repr_html_(self) -> str:
        """The summary, for notebooks."""
        return to_fragment(*self.plans)

    def save(self, path: str | Path) -> None:
        """Write the plans as JSON; what is at `path` stays whole until the new file is complete.

        Raises
        ------
        PlanError
            The file cannot be written.
        """
        file.write_set([plan.data() for plan in self.plans], Path(path))

    @classmethod
    def load(cls, path: str | Path, model: Any) -> PlanSet:
        """Read saved plans; `model` is the network that they were made for, as `collage.load` takes it.

        Raises
        ------
        PlanError, FrontendError
            As of `Plan.load` and `collage.load`.
        """
        source = Path(path)
        read = file.read_set(source)
        if any(not data.inputs for data in read):
            raise PlanError(f"{source}: a plan has no shapes of inputs")
        return cls(model, tuple(Plan.of(data, load(model, data.inputs, data.device), source) for data in read))
