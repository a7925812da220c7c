"""Collage: which backend should run which part of a neural network, found by cost.

    import collage

    mod = collage.load("resnet50.onnx")
    plan = collage.partition(mod, backends=["tvm", "openvino", "onnxruntime"])
    print(plan.summary())
    exe = plan.compile()
    exe.export("resnet50.so")

Everything is imported on first use, so that `import collage.runtime` in a deployed process loads nothing of the
compiler side.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collage.cost import Cost as Cost
    from collage.errors import CollageError as CollageError
    from collage.estimate import CostEstimator as CostEstimator
    from collage.estimate import Workload as Workload
    from collage.frontend import load as load
    from collage.partitioner import partition as partition
    from collage.plan import Plan as Plan
    from collage.search import Partitioning as Partitioning
    from collage.search import Searcher as Searcher
    from collage.search import SearchProblem as SearchProblem
    from collage.transform import CollagePartition as CollagePartition

__version__ = "0.1.0"

_EXPORTS = {
    "load": "collage.frontend",
    "partition": "collage.partitioner",
    "Plan": "collage.plan",
    "CollagePartition": "collage.transform",
    "Searcher": "collage.search",
    "SearchProblem": "collage.search",
    "Partitioning": "collage.search",
    "CostEstimator": "collage.estimate",
    "Workload": "collage.estimate",
    "Cost": "collage.cost",
    "CollageError": "collage.errors",
}
__all__ = [*_EXPORTS, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'collage' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
