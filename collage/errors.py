"""Every error that Collage raises, in one tree.

A message says what went wrong, on what (node, operator, backend, file), and what to do about it. The command line
prints the message alone and exits with status 2; `--verbose` shows the traceback.
"""

import traceback
from pathlib import Path


class CollageError(Exception):
    """Base of all errors raised by Collage."""


class FrontendError(CollageError):
    """A model could not be read or brought into canonical form."""


class UnboundDimensionError(FrontendError):
    """A graph input has a dynamic dimension that no `shapes=` entry binds."""


class UnsupportedOperatorError(FrontendError):
    """An operator of the model cannot be imported; the message names the operator and the node."""


class PluginError(CollageError):
    """A backend, searcher or estimator name is unknown, or its plug-in does not load."""


class BackendUnavailableError(CollageError):
    """A backend was asked for by name but cannot be used on this machine."""


class NoCoverError(CollageError):
    """No finite-cost cover exists; the message names the nodes that no backend can run."""


class CodegenError(CollageError):
    """A backend cannot compile a sub-graph; the candidate becomes Invalid with this as the reason."""


class RecordsError(CollageError):
    """A records database or benchmark log is unreadable, of another schema version, or cannot be written."""


class PlanError(CollageError):
    """A plan file is unreadable, of another version, or belongs to another network."""


class ModelInputError(CollageError):
    """A compiled model was called with inputs of the wrong count, shape or dtype."""


class CompiledModelError(CollageError):
    """A compiled model file is missing, corrupt, or needs a runtime that is not installed."""


class SearchInterrupted(CollageError):
    """The user interrupted a tuning run; what was measured is kept, and the message says how to resume."""


def last_line(error: BaseException) -> str:
    """The line of an error that says what went wrong, for a reason or another error's message.

    TVM puts it below its stack trace. Of an error without a message it is the kind, and where it was raised.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines:
        return lines[-1][:500]
    kind, frames = type(error).__name__, traceback.extract_tb(error.__traceback__)
    if not frames:
        return kind
    place = frames[-1]
    return f"{kind} in {place.name} ({Path(place.filename).name}, line {place.lineno}): {place.line}"[:500]
