"""`torch.export` programs, through TVM's importer. PyTorch is optional: nothing here imports it by itself."""

from __future__ import annotations

import re
import sys
from typing import Any

import tvm

from collage.errors import FrontendError, UnsupportedOperatorError


def is_exported_program(model: Any) -> bool:
    """Whether `model` is a `torch.export.ExportedProgram`: the class is imported already wherever one was made."""
    module = sys.modules.get("torch.export")
    return module is not None and isinstance(model, module.ExportedProgram)


def import_torch(program: Any) -> tvm.IRModule:
    """A Relax module with one function `main`, weights bound, not yet canonical; dynamic dimensions stay symbolic.

    Raises
    ------
    UnsupportedOperatorError
        Operators that TVM's importer lacks, by name.
    FrontendError
        The importer failed.
    """
    from tvm.relax.frontend.torch import from_exported_program

    try:
        return from_exported_program(program, keep_params_as_input=False, unwrap_unit_return_tuple=True)
    except Exception as error:  # the importer raises assertion, value, key and TVM errors alike
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        if "Unsupported function type" in reason:
            operators = re.findall(r"'([^']+)'", reason)
            listed = "; ".join(f"{operator}{_users(program, operator)}" for operator in operators)
            raise UnsupportedOperatorError(f"unsupported PyTorch operators: {listed or reason}") from error
        raise FrontendError(f"the PyTorch program cannot be imported: {reason}") from error


def _users(program: Any, operator: str) -> str:
    """The nodes that call an operator; none when it only appears in the decomposition of another."""
    names = [f"'{node.name}'" for node in program.graph.nodes if str(node.target).endswith(operator)]
    return f" (node {', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else ""
