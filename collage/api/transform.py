"""CollagePartition: the partitioner as a TVM pass, for use in a pipeline of passes.

mod = tvm.transform.Sequential([
    collage.CollagePartition(backends=["tvm", "openvino"]),
    relax.transform.RunCodegen({"openvino": {"threads": 2}}),
    ...
])(mod)
"""

from __future__ import annotations

from typing import Any

import tvm

from collage.api.partitioner import partition
from collage.compile.build import register_codegen, with_called


@tvm.transform.module_pass(opt_level=0, name="CollagePartition")
class CollagePartition:
    """Replaces `main` by the partitioned one: `Codegen` functions, ready for `RunCodegen`, and `Primitive`
    functions, for TVM.

    The code generators of the backends are registered as `relax.ext.<backend>`.

    Parameters
    ----------
    options
        As of `collage.partition`. `confirm_end_to_end` is False by default, because the caller's pipeline decides how
        the module is built; the module is that of the searched placement.
    """

    def __init__(self, **options: Any) -> None:
        self.options = {"confirm_end_to_end": False, **options}

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        """Run the phases on the module's `main`, which is made canonical first."""
        plan = partition(mod, **self.options)
        for backend in with_called(plan.backends.values()).values():
            if backend.style != "native":
                register_codegen(backend)
        return plan.partitioned()
