"""Collage decides, by measured cost, which backend runs which part of a neural network.

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
    from collage.api.partitioner import partition as partition
    from collage.api.plan import Plan as Plan
    from collage.api.plan_set import PlanSet as PlanSet
    from collage.api.several_functions import partition_functions as partition_functions
    from collage.api.several_shapes import partition_shapes as partition_shapes
    from collage.api.transform import CollagePartition as CollagePartition
    from collage.backends.base import Availability as Availability
    from collage.backends.base import Backend as Backend
    from collage.backends.optimize import optimize_for as optimize_for
    from collage.cost.cost import Cost as Cost
    from collage.cost.estimator import CostEstimator as CostEstimator
    from collage.cost.estimator import Workload as Workload
    from collage.errors import BackendUnavailableError as BackendUnavailableError
    from collage.errors import CodegenError as CodegenError
    from collage.errors import CollageError as CollageError
    from collage.errors import CompiledModelError as CompiledModelError
    from collage.errors import FrontendError as FrontendError
    from collage.errors import ModelInputError as ModelInputError
    from collage.errors import NoCoverError as NoCoverError
    from collage.errors import PlanError as PlanError
    from collage.errors import PluginError as PluginError
    from collage.errors import RecordsError as RecordsError
    from collage.errors import SearchInterrupted as SearchInterrupted
    from collage.errors import UnboundDimensionError as UnboundDimensionError
    from collage.errors import UnsupportedOperatorError as UnsupportedOperatorError
    from collage.frontend import batch_shapes as batch_shapes
    from collage.frontend import load as load
    from collage.graph.candidates import CandidatePartition as CandidatePartition
    from collage.graph.dataflow_graph import DataflowGraph as DataflowGraph
    from collage.graph.index_set import IndexSet as IndexSet
    from collage.graph.sub_graph import SubGraph as SubGraph
    from collage.progress import Reporter as Reporter
    from collage.rules.base import PartitionRule as PartitionRule
    from collage.search import Partitioning as Partitioning
    from collage.search import Searcher as Searcher
    from collage.search import SearchProblem as SearchProblem

__version__ = "0.1.0"

_EXPORTS = {
    "load": "collage.frontend",
    "batch_shapes": "collage.frontend",
    "partition": "collage.api.partitioner",
    "partition_shapes": "collage.api.several_shapes",
    "Plan": "collage.api.plan",
    "partition_functions": "collage.api.several_functions",
    "optimize_for": "collage.backends.optimize",
    "PlanSet": "collage.api.plan_set",
    "CollagePartition": "collage.api.transform",
    "Backend": "collage.backends.base",
    "Availability": "collage.backends.base",
    "PartitionRule": "collage.rules.base",
    "CandidatePartition": "collage.graph.candidates",
    "DataflowGraph": "collage.graph.dataflow_graph",
    "IndexSet": "collage.graph.index_set",
    "SubGraph": "collage.graph.sub_graph",
    "Searcher": "collage.search",
    "SearchProblem": "collage.search",
    "Partitioning": "collage.search",
    "CostEstimator": "collage.cost.estimator",
    "Workload": "collage.cost.estimator",
    "Cost": "collage.cost.cost",
    "Reporter": "collage.progress",
    "CollageError": "collage.errors",
    "FrontendError": "collage.errors",
    "UnboundDimensionError": "collage.errors",
    "UnsupportedOperatorError": "collage.errors",
    "PluginError": "collage.errors",
    "BackendUnavailableError": "collage.errors",
    "NoCoverError": "collage.errors",
    "CodegenError": "collage.errors",
    "RecordsError": "collage.errors",
    "PlanError": "collage.errors",
    "ModelInputError": "collage.errors",
    "CompiledModelError": "collage.errors",
    "SearchInterrupted": "collage.errors",
}
__all__ = [*_EXPORTS, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'collage' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
