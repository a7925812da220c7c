"""Partition rules: from a dataflow graph to the candidate partitions of each backend (RFC 0062, phase 1)."""

from collage.rules.base import OpCallByKindPartitionRule, OpPredicatePartitionRule, PartitionRule, candidate_of
from collage.rules.combinators import (
    CalledPartitionRule,
    CompositePartitionRule,
    FilterPartitionRule,
    OnlyValidPartitionRule,
    PrimitivePartitionRule,
    UnionPartitionRule,
)
from collage.rules.combine import CombinePartitionRule
from collage.rules.combiners import (
    NATIVE_KIND_TABLE,
    CombineByKind,
    CombinerRule,
    CombineTupleArguments,
    CombineTupleProjections,
)
from collage.rules.gather import check_coverable, gather_candidates
from collage.rules.host import HostPartitionRule
from collage.rules.pattern_rule import DFPatternPartitionRule, PatternMatch
from collage.rules.regions import RegionPartitionRule
from collage.rules.registry import RegistryPartitionRule
from collage.rules.trees import graph_rule, library_rule, native_rule

__all__ = [
    "NATIVE_KIND_TABLE",
    "CalledPartitionRule",
    "CombineByKind",
    "CombinePartitionRule",
    "CombineTupleArguments",
    "CombineTupleProjections",
    "CombinerRule",
    "CompositePartitionRule",
    "DFPatternPartitionRule",
    "FilterPartitionRule",
    "HostPartitionRule",
    "OnlyValidPartitionRule",
    "OpCallByKindPartitionRule",
    "OpPredicatePartitionRule",
    "PartitionRule",
    "PatternMatch",
    "PrimitivePartitionRule",
    "RegionPartitionRule",
    "RegistryPartitionRule",
    "UnionPartitionRule",
    "candidate_of",
    "check_coverable",
    "gather_candidates",
    "graph_rule",
    "library_rule",
    "native_rule",
]
