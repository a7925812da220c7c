"""The user's ONNX file as one partition (`collage.compile.rewrite.on_file`): how its label and function say so."""

from __future__ import annotations

import hashlib
from pathlib import Path

#: What labels of such partitions begin with; the digest of the file follows.
_LABEL = "onnx-file "
#: Attribute of a `Codegen` function: the path of the file that it stands for.
ONNX_FILE = "collage.onnx_file"


def file_label(path: Path) -> str:
    """The label of a partition that runs a file. Weights in files beside it are not part of the digest."""
    return f"{_LABEL}{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


def is_file_label(label: str) -> bool:
    """Whether a label says that a partition runs the user's file."""
    return label.startswith(_LABEL)
