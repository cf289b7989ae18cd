import logging
from dataclasses import replace

from tfopt.artifacts import Benchmark, Blessing, Decision, Evaluation, Model
from tfopt.component import Group, Input, Output, component
from tfopt.components.select_model.output_model import write_selected
from tfopt.components.select_model.parameters import Criteria
from tfopt.model_store.run_history import read_runs
from tfopt.reports.decision_report import BlessingReport, DecisionReport
from tfopt.serving.layouts import find_pusher_misfit


@component(image="tf", purpose="selection", cache="local")
def select_model(
    baseline: Input[Model],
    candidates: Input[list[Model]],
    evaluation: Input[Evaluation],
    benchmark: Input[Benchmark],
    selected: Output[Model],
    decision: Output[Decision],
    blessing: Output[Blessing],
    *,
    criteria: Group[Criteria],
) -> None:
    """Select exactly one model: the best candidate that meets every goal, or the baseline.

    A goal is a metric, one of four words and a number: "accuracy threshold 0.95" (at least, or at most for a metric
    where lower is better), "latency min_improvement 20%", "accuracy max_degradation 0.01". The last two compare with
    the baseline, in the metric's unit or in percent of the baseline's value. Every measured metric can be named: those
    of the evaluation ("quality" is its main metric), and latency, latency_p90, latency_p99 (ms, batch size 1),
    throughput (examples per second, largest batch size), size, size_gzipped, memory (bytes), load (s), cold_start (s,
    loading and the first call) and error (largest difference to the baseline's output). With ``max_p99_ms``,
    `benchmark` also measures capacity (requests per second of a node), with ``rate`` p99_at_rate (ms) and nodes, with
    ``price`` cost (of a million predictions). A fourth kind, "accuracy max_regression 1%", compares every model, the
    baseline too, with the median of the models selected in earlier blessed runs. It is missed only if the difference is
    significant, because those models were evaluated on other data. Speed is compared with runs on the same CPU, threads
    and batch sizes. "accuracy[label=3] max_degradation 1%" is a goal for one slice of the evaluation, the records whose
    label is 3; "accuracy[city=*]" one for every city with at least ``slice_records`` records.

    Among the candidates that meet the goals and are significantly better than the baseline at the objective, the best
    is selected; of those that are indistinguishable from it, the smallest. Speed is compared by the ratio to the
    fastest model, as `benchmark` measured it; differences of less than 1 % are none. If no candidate is significantly
    better, the baseline is selected. It is blessed if it meets the goals that apply to it, the thresholds. If it does
    not, the best candidate that meets the goals is selected, whether or not it is better than the baseline at the
    objective.

    On a machine that other processes use, `benchmark` may find a comparison *unstable*. Then it is no evidence: the
    candidate misses each goal on latency, throughput or loading, and is not significantly better in speed. Such speeds
    are not compared with earlier runs, nor later runs with them.

    Args:
        baseline: The model that the candidates are compared with; always a candidate itself.
        candidates: The other models, the same as in evaluate and benchmark.
        evaluation: The quality of the models.
        benchmark: The speed and size of the models.
        selected: The selected model with its model card. ``Format-Serving`` has the deployed files and nothing else.
        decision: ``decision.json``, with the reasons for each model, and ``report.html``.
        blessing: Whether the selected model may be pushed, in the form of TFX's ModelBlessing and InfraBlessing. TFX's
            Pusher copies ``Format-Serving`` as it is: if no server loads that (a file after a preprocessing
            SavedModel, or other file names in ``layout``), only `push_model` may push.
        criteria: Goals, objective and other criteria.

    Raises:
        ComponentError: If a goal cannot be parsed, its metric or slice was not measured, a report does not contain one
            of the models, or a file of the run history is damaged.
    """
    from tfopt.components.select_model.decide import decide  # imports Lets-Plot
    from tfopt.components.select_model.report import write_report

    runs = read_runs(criteria.destination, criteria.recent_runs) if criteria.destination else []
    models = [baseline, *candidates]
    chosen, report = decide(models, evaluation.load(), benchmark.load(), criteria, runs)
    write_selected(chosen, report.selected, selected, criteria.confidence)
    written = Model(selected.path)
    withheld = find_pusher_misfit(written, criteria.layout) if report.blessed else None
    notes = [f"TFX's Pusher may not push {report.selected}, but push_model may: {withheld}"] if withheld else []
    report = replace(report, selected_digest=written.digest, notes=[*report.notes, *notes])
    decision.write(report)
    write_report(decision, models, evaluation, benchmark)
    _bless(blessing, report, withheld)
    _describe(decision, report)


def _describe(decision: Decision, report: DecisionReport) -> None:
    log = logging.getLogger(__name__)
    log.info("%s", report.reason)
    if report.unstable:
        log.warning("unstable, speed not compared: %s", ", ".join(report.unstable))
    for warning in report.chosen.warnings:
        log.warning("%s: %s", report.selected, warning)
    for regression in report.history.regressions:
        log.warning("regression: %s", regression)
    for note in report.notes:
        log.warning("note: %s", note)
    decision.metadata |= {
        "selected": report.selected,
        "blessed": int(report.blessed),
        "reason": report.reason,
        "unstable": len(report.unstable),
        "regressions": len(report.history.regressions),
    }


def _bless(blessing: Blessing, report: DecisionReport, withheld: str | None) -> None:
    """Write the blessing for `push_model`, and as TFX does: a marker file for people, an integer for Pusher."""
    permission = BlessingReport(report.blessed, report.reason, report.selected_digest, report.parent.passed, withheld)
    blessing.write(permission)
    is_blessed = report.blessed and not withheld
    (blessing.path / ("BLESSED" if is_blessed else "NOT_BLESSED")).touch()
    blessing.metadata |= {"blessed": int(is_blessed), "reason": report.notes[-1] if withheld else report.reason}
