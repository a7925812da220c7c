"""`collage compile` and `collage report`: what can be done with a plan that was saved, and perhaps edited."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from collage.cli.exits import guarded
from collage.cli.options import Details, Html, Model, Output, Records, Shapes, Verbose, parse_shapes, require_writable
from collage.cli.terminal import quiet
from collage.cli.tune import native_backend, tuning_folder

if TYPE_CHECKING:
    from collage.api.plan import Plan
    from collage.api.plan_set import PlanSet

_PlanFile = Annotated[
    Path, typer.Argument(metavar="PLAN.json", help="A plan that `collage tune` wrote.", show_default=False)
]


@guarded
def compile_plan(
    model: Model,
    output: Output,
    plan: Annotated[Path, typer.Option(metavar="PLAN.json", help="The plan to compile.", show_default=False)],
    records: Records = None,
    shape: Shapes = None,
    verbose: Verbose = False,
) -> None:
    """Compile a network by a saved, or edited, plan: nothing is measured."""
    shapes = parse_shapes(shape)
    require_writable({"--output": output}, {"the model": model, "the plan": plan})
    with quiet(verbose) as terminal:
        from collage.cli.progress_bar import ProgressBar

        reporter = ProgressBar(terminal)
        try:
            reporter.stage("compiling")
            _load(plan, model, shapes, records).compile().export(output)
            reporter.finish()
        finally:
            reporter.close()
    print(f"Wrote {output}")


@guarded
def report(
    plan: _PlanFile,
    model: Model,
    shape: Shapes = None,
    html: Html = None,
    details: Details = False,
    verbose: Verbose = False,
) -> None:
    """Print the summary of a saved plan again, or write it as a web page."""
    shapes = parse_shapes(shape)
    require_writable({"--html": html}, {"the model": model, "the plan": plan})
    with quiet(verbose):
        from collage.api.plan import Plan

        found = _load(plan, model, shapes, None)
        plans = [plan.with_network() for plan in ([found] if isinstance(found, Plan) else found.plans)]
    if html is None:
        from collage.report.summary import print_summary

        print_summary(*plans, details=details)
    else:
        from collage.report.html import write_html

        write_html(plans, html, model.name)
        print(f"Wrote {html}")


def _load(path: Path, model: Path, shapes: dict[str, tuple[int, ...]], records: str | None) -> Plan | PlanSet:
    """The plan, or the plans for several shapes, with TVM's kernels scheduled from the tuning records beside the
    records database.
    """
    from collage.without_torch import import_tvm_without_torch

    import_tvm_without_torch()
    from collage.api.plan import Plan
    from collage.api.plan_set import PlanSet
    from collage.frontend import load
    from collage.planned.file import is_set

    def scheduled(plan: Plan) -> Plan:
        native = native_backend(plan.device, tuning_folder(records, plan.device))
        if native.name not in plan.backends or plan.target:
            return plan
        return replace(plan, backends={**plan.backends, native.name: native})

    if not is_set(path):
        return scheduled(Plan.load(path, load(model, shapes)))
    if shapes:
        raise typer.BadParameter("the file has plans for several shapes, and says which", param_hint="--shape")
    found = PlanSet.load(path, model)
    return PlanSet(found.model, tuple(map(scheduled, found.plans)))
