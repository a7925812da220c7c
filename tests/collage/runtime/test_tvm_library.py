"""A deployed process has what TVM's kernels call, without TVM's compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tvm import relax
from tvm.relax import op

from collage.compile.build import build_untouched
from collage.frontend import load

_SCRIPT = """
import sys, numpy as np, collage.runtime
values, places = collage.runtime.load(sys.argv[1])(np.array([[3, 1, 4, 1.5]], "float32"))
print(values.tolist(), places.tolist(), "tvm" in sys.modules)
"""


def test_kernels_that_call_a_sorting_function_run(tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((1, 4), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            result = builder.emit_output(op.topk(data, k=2, axis=1, ret_type="both", dtype="int64"))
        builder.emit_func_output(result)
    library = tmp_path / "topk.so"
    build_untouched(load(builder.get()), 1, {}, "cpu").export(library)
    done = subprocess.run([sys.executable, "-c", _SCRIPT, str(library)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[[4.0, 3.0]] [[2, 0]] False", done.stderr[-300:]
