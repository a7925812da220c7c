"""From sub-graphs back to Relax (RFC 0062, phase 4).

`extract` makes the module that is measured; `apply` makes the partitioned module that is compiled. Both build a
partition's body with the same code, so that what is measured is what runs.

A partition becomes private functions that `main` calls, one after the other; mostly one:

- native: a `Primitive` function with attribute `collage.backend`; weights are parameters, so that one kernel serves
  all places. One with labelled patterns inside is several: its kernels, and the functions of the libraries that it
  calls (`collage.compile.rewrite.steps`);
- graph: a `Codegen` function whose body is the sub-graph; weights are inside, and attributes say which products are
  in eight bits;
- graph, on the network's own ONNX file: a `Codegen` function whose attribute names the file
  (`collage.compile.rewrite.on_file`);
- library: a `Codegen` function that holds one `Composite` function per labelled pattern; of a backend of eight bits,
  an attribute says what its parameters range over.
"""

from collage.compile.rewrite.body import Body, ordered_inputs, ordered_outputs
from collage.compile.rewrite.extraction import extract
from collage.compile.rewrite.network import apply, with_outputs
from collage.compile.rewrite.on_file import file_partition, whole_files
from collage.compile.rewrite.partition import Partition, partition_function
from collage.compile.rewrite.steps import steps_of
from collage.compile.rewrite.values import function_type

__all__ = [
    "Body",
    "Partition",
    "apply",
    "extract",
    "file_partition",
    "function_type",
    "ordered_inputs",
    "ordered_outputs",
    "partition_function",
    "steps_of",
    "whole_files",
    "with_outputs",
]
