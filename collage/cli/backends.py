"""`collage backends`: what can be used on this machine, and what is missing."""

from __future__ import annotations

import shutil
import textwrap

from collage.cli.exits import guarded
from collage.cli.options import Verbose
from collage.cli.terminal import quiet


@guarded
def backends(verbose: Verbose = False) -> None:
    """List the backends: those that can be used, with their versions and priorities; then what the others lack."""
    from collage.runtime.threads import default_threads

    with quiet(verbose):
        usable, missing = _listed()
    wide = max(map(len, [*(row[0] for row in usable), *(row[0] for row in missing)]), default=0)
    print(f"{'backend':{wide}}  {'style':7}  {'device':6}  {'priority':>8}  {'available':9}  version")
    for name, style, device, priority, version in usable:
        print(f"{name:{wide}}  {style:7}  {device:6}  {priority:>8}  {'yes':9}  {version}")
    print(f"They use {default_threads()} threads unless --threads says otherwise.")
    columns = shutil.get_terminal_size((100, 24)).columns
    for name, device, reason in missing:
        line = f"{name:{wide}}  {device:4}  no: {reason}"
        print(textwrap.fill(line, columns, subsequent_indent=" " * (wide + 12), break_on_hyphens=False))


def _listed() -> tuple[list[tuple[str, str, str, int, str]], list[tuple[str, str, str]]]:
    """(name, style, device, priority, version) of what can be used; (name, device, reason) of what cannot."""
    from collage.without_torch import import_tvm_without_torch

    import_tvm_without_torch()
    from collage import plugins
    from collage.errors import PluginError

    usable, missing = [], []
    for name in plugins.names("backends"):
        try:
            backend = plugins.load("backends", name)
        except PluginError as error:
            missing.append((name, "", str(error)))
            continue
        state = backend.availability()
        if state.available:
            usable.append((name, backend.style, backend.device, backend.priority, backend.version()))
        else:
            missing.append((name, backend.device, state.reason))
    return usable, missing
