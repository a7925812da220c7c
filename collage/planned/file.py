"""The plan's file: JSON that people can read and edit. Change the `backend` of a partition, and compile it again.

JSON has neither NaN nor infinity: an Unknown cost has `null` seconds and an Invalid one "invalid"; other numbers that
are not finite are `null`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from collage.annotations.onnx_file import is_file_label
from collage.annotations.precision import FLOAT32, INT8
from collage.backends.base import Backend
from collage.errors import PlanError
from collage.files import replacing
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.planned.data import PlanData

FORMAT = "collage-plan"
VERSION = 2
#: Of a file with plans for several shapes: a list of what files of one plan hold.
SET_FORMAT, SET_VERSION = "collage-plan-set", 1

#: What `null` stands for, by name.
_NULLS = {
    "seconds": math.nan,
    "searched_s": math.nan,
    "isolated_s": math.nan,
    "loss": math.inf,
    "greedy_loss": math.nan,
}


def to_dict(data: PlanData) -> dict[str, Any]:
    """JSON-compatible; `write` writes it."""
    fields: dict[str, Any] = _finite(msgspec.to_builtins(data))
    if data.device == "cpu":
        del fields["device"]
    if math.isnan(data.greedy_loss):
        del fields["greedy_loss"]
    if not data.transitions:
        del fields["transitions"]
    if not data.inputs:
        del fields["inputs"]
    for name in ("accuracy", "copies", "frontier", "ranges", "graph", "candidates", "target"):
        if not fields[name]:
            del fields[name]
    for contestant in (fields["confirmation"] or {}).get("rivals", ()):
        if not contestant["timeline"]:
            del contestant["timeline"]
    for partition in fields["partitions"]:
        if partition["precision"] == FLOAT32:
            del partition["precision"]
    return {"format": FORMAT, "version": VERSION, **fields}


def write(data: PlanData, path: Path) -> None:
    """Write the plan as JSON; what is at `path` stays whole until the new file is complete.

    Raises
    ------
    PlanError
        The file cannot be written.
    """
    _write(to_dict(data), path)


def write_set(plans: Sequence[PlanData], path: Path) -> None:
    """Write plans for several shapes, as `write` does one."""
    _write({"format": SET_FORMAT, "version": SET_VERSION, "plans": [to_dict(plan) for plan in plans]}, path)


def _write(content: dict[str, Any], path: Path) -> None:
    try:
        with replacing(path) as partial:
            partial.write_text(_text(content) + "\n", encoding="utf-8")
    except OSError as error:
        raise PlanError(f"{path}: cannot write the plan: {error.strerror}") from error


def read(path: Path) -> PlanData:
    """Read a plan; `check` holds it against the network.

    Raises
    ------
    PlanError
        The file is missing, is not a plan, is of another version, or has a field that is missing or wrong.
    """
    content = _content(path)
    if _is_set(content):
        raise PlanError(f"{path}: plans for several shapes: collage.PlanSet.load reads them")
    return _plan(content, path)


def read_set(path: Path) -> tuple[PlanData, ...]:
    """Read plans for several shapes; raises as `read` does."""
    content = _content(path)
    if not _is_set(content):
        raise PlanError(f"{path}: not plans for several shapes")
    if content.get("version") != SET_VERSION:
        raise PlanError(f"{path}: plans of version {content.get('version')}; this Collage reads {SET_VERSION}")
    plans = content.get("plans")
    if not isinstance(plans, list) or not plans:
        raise PlanError(f"{path}: holds no plans")
    return tuple(_plan(plan, path) for plan in plans)


def is_set(path: Path) -> bool:
    """Whether a file has plans for several shapes. Raises PlanError where it cannot be read."""
    return _is_set(_content(path))


def _is_set(content: Any) -> bool:
    return isinstance(content, dict) and content.get("format") == SET_FORMAT


def _content(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{path}: cannot read the plan: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path}: not a plan: {error}") from error


def _plan(data: Any, path: Path) -> PlanData:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise PlanError(f"{path}: not a plan written by Collage")
    if data.get("version") != VERSION:
        raise PlanError(
            f"{path}: a plan of version {data.get('version')}; this Collage reads version {VERSION}: tune again"
        )
    try:
        return msgspec.convert(_with_infinities(data), PlanData)
    except (msgspec.ValidationError, RecursionError) as error:
        raise PlanError(f"{path}: a field of the plan is missing or wrong: {error}") from error


def check(data: PlanData, graph: DataflowGraph, path: Path) -> None:
    """The nodes of an edited plan have to be those that it names, and its graph that of the network.

    Raises
    ------
    PlanError
        They are not.
    """
    own = [(node.op, node.inputs) for node in graph.nodes]
    if data.graph is not None and [(node.op, node.inputs) for node in data.graph.nodes] != own:
        raise PlanError(f"{path}: its `graph` is not that of the network: take it out")
    for number, partition in enumerate(data.partitions):
        if any(not 0 <= i < len(graph.nodes) for i in partition.nodes) or not partition.nodes:
            raise PlanError(
                f"{path}: partition {number} names nodes that the network does not have: {list(partition.nodes)}"
            )
        operators = tuple(graph.nodes[i].op for i in partition.nodes)
        if operators != partition.operators:
            raise PlanError(f"{path}: partition {number} holds {list(operators)}, not {list(partition.operators)}")


def check_labels(data: PlanData, graph: DataflowGraph, backends: Mapping[str, Backend], path: Path) -> None:
    """What is labelled in a partition of a graph backend has to be nodes that it can compute in eight bits.

    Raises
    ------
    PlanError
        It is not.
    """
    for number, partition in enumerate(data.partitions):
        backend = backends.get(partition.backend)
        if backend is None or backend.style != "graph":
            continue  # a library's labels are its patterns, and it finds out itself
        where = f"{path}: partition {number}, on {backend.name}"
        for label, nodes in partition.composites:
            if is_file_label(label):
                continue
            if label != INT8:
                raise PlanError(f"{where}: it has no patterns, and {label!r} is none: only {INT8!r} labels its nodes")
            inside = IndexSet(partition.nodes) & IndexSet(nodes)
            if wrong := sorted(set(nodes) - set(backend.int8_nodes(graph, inside))):
                named = ", ".join(f"{i} ({graph.nodes[i].op})" if i in inside else f"{i} (not inside)" for i in wrong)
                raise PlanError(f"{where}: cannot compute in {INT8}: node {named}; take it out of `composites`")


def _finite(value: Any, name: str = "") -> Any:
    """Without NaN and infinity."""
    if isinstance(value, dict):
        return {key: _finite(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "invalid" if name == "seconds" and math.isinf(value) else None
    return value


def _with_infinities(value: Any, name: str = "") -> Any:
    """What `_finite` was given."""
    if isinstance(value, dict):
        return {key: _with_infinities(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_infinities(item) for item in value]
    if value is None and name in _NULLS:
        return _NULLS[name]
    return math.inf if value == "invalid" and name == "seconds" else value


def _text(value: Any, indent: int = 0) -> str:
    """JSON to read: a field a line, and a row a line: of lists with neither objects nor rows inside of rows."""
    inner, outer = "\n" + " " * (indent + 1), "\n" + " " * indent
    if isinstance(value, dict) and value:
        fields = (f"{inner}{json.dumps(name)}: {_text(item, indent + 1)}" for name, item in value.items())
        return f"{{{','.join(fields)}{outer}}}"
    if isinstance(value, list) and not _is_row(value, 2):
        return f"[{','.join(inner + _text(item, indent + 1) for item in value)}{outer}]"
    return json.dumps(value)


def _is_row(value: list[Any], depth: int) -> bool:
    """Whether there are no objects inside, and lists only so deep."""
    return depth > 0 and all(
        _is_row(item, depth - 1) if isinstance(item, list) else not isinstance(item, dict) for item in value
    )
