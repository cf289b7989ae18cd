"""The report of an inspection: plain text for a terminal, and a self-contained HTML file."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from tfopt.charts.page_templates import report_template
from tfopt.formatting import count, data_size, indented
from tfopt.graph.matching.batch_norms import without_scopes
from tfopt.reports.inspection_report import InspectionReport, LighterBackbones

MAX_ROWS = 10


def render_text(report: InspectionReport) -> str:
    """Return the report as lines of plain text."""
    return "\n".join(map(indented, _lines(report))) + "\n"


def render_html(report: InspectionReport) -> str:
    """Return the report as an HTML document."""
    folder = Path(__file__).parent
    template = report_template(folder, count=count, size=data_size, percent=percent, without_scopes=without_scopes)
    return template.render(**vars(report))


def percent(fraction: float | None) -> str:
    """Format a fraction in percent.

    >>> percent(0.9951), percent(None)
    ('99.5%', '-')
    """
    return "-" if fraction is None else f"{100 * fraction:.1f}%"


def _lines(report: InspectionReport) -> Iterator[str]:
    flops, norms, sparsity = report.flops, report.batch_norms, report.sparsity
    yield f"{report.model}, {report.signature}: {_join_specs(report.inputs)} -> {_join_specs(report.outputs)}"
    if report.assumed:
        yield f"  counted for one example, with {_join_specs(report.assumed)}"
    yield f"  parameters     {count(report.parameters.count)} ({data_size(report.parameters.bytes)})"
    yield f"  operations     {count(flops.total)}FLOP, {data_size(report.bytes_moved)} moved"
    if report.loops:
        yield f"    in loops     {count(flops.in_loops)}FLOP ({report.loops} found)"
    if flops.not_counted:
        yield f"    not counted  {_join_counts(flops.not_counted)}"
    yield f"  ops            {_join_counts(report.ops)}"
    yield f"  batch norms    {norms.found} found, {norms.foldable} can be folded"
    for norm in norms.stay[:MAX_ROWS]:
        yield f"    stays        {without_scopes(norm.batch_norm)}: {without_scopes(norm.why)}"
    for name, kernels, coverage in (
        ("quantizable", "integer kernels", report.quantizable),
        ("xnnpack", "XNNPACK", report.xnnpack),
    ):
        yield f"  {name:<14} {percent(coverage.flops)} of the work, {percent(coverage.ops)} of the ops ({kernels})"
        if coverage.left_out:
            yield f"    left out     {_join_counts(coverage.left_out)}"
    yield f"  channels       {len(report.channels)} kernels with channels that are no multiple of 8"
    for weight in report.non_finite:
        yield f"  not finite     {weight.node}: {weight.nan} NaN and {weight.infinite} infinite of {weight.size} values"
    for operator in report.outside[:MAX_ROWS]:
        yield f"  outside        {operator.node} ({operator.op}) {operator.effect}"
    yield f"  sparsity       {percent(sparsity.fraction)} zeros, {sparsity.two_of_four} kernels of 2:4"
    yield from _backbone_lines(report.backbones)
    for number, advice in enumerate(report.advice, 1):
        yield f"  {'next' if number == 1 else '':<14} {number}. {advice.command}"
        yield f"  {'':<14}    {advice.why}"


def _backbone_lines(backbones: LighterBackbones) -> Iterator[str]:
    budget = ", ".join(f"{value:g} {name}" for name, value in vars(backbones.budget).items() if value is not None)
    if budget:
        yield f"  budget         {budget}: this model {'fits' if backbones.model_fits else 'does not fit'}"
    if backbones.task is None:
        yield f"  backbones      none listed: {backbones.reason}"
        return
    names = ", ".join(row.name for row in backbones.fitting[:MAX_ROWS]) or "none in the table"
    yield f"  backbones      lighter for {backbones.task}{', within the budget' if budget else ''}: {names}"


def _join_specs(specs: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {spec}" for name, spec in specs.items())


def _join_counts(counts: Mapping[str, int]) -> str:
    shown = [f"{number} {name}" for name, number in list(counts.items())[:MAX_ROWS]]
    return ", ".join(shown) + (f" and {len(counts) - MAX_ROWS} more" if len(counts) > MAX_ROWS else "")
