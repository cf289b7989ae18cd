"""Decide which of the measured models is used from now on, and show why."""

import logging
from typing import Annotated, Any, Literal

from tfopt.artifacts import Benchmark, Blessing, Decision, Evaluation, Model
from tfopt.artifacts.storage import is_remote
from tfopt.component import Between, Input, Output, Reads, component
from tfopt.errors import ComponentError
from tfopt.measurement.goals import read_goals
from tfopt.model_store import run_history as past
from tfopt.model_store.run_history import MIN_RUNS

WATCHED = ["quality max_regression 1%", "latency max_regression 10%", "size max_regression 10%"]


@component(image="tf", cache="local")
def select_model(
    baseline: Input[Model],
    candidates: Input[list[Model]],
    evaluation: Input[Evaluation],
    benchmark: Input[Benchmark],
    selected: Output[Model],
    decision: Output[Decision],
    blessing: Output[Blessing],
    *,
    goals: Annotated[list[str], Reads(read_goals, ("quality max_degradation 1%",))] = ["quality max_degradation 1%"],  # noqa: B006  (a declared default, never changed)
    objective: Literal["latency", "throughput", "size", "size_gzipped", "memory", "quality"] = "latency",
    confidence: Literal["interval", "point"] = "interval",
    history: str | None = None,
    last: Annotated[int, Between(MIN_RUNS, 1000)] = 10,
    watch: Annotated[list[str], Reads(read_goals, ("latency max_regression 5%",))] = WATCHED,
    layout: Literal["auto", "tf_serving", "triton", "plain"] = "auto",
) -> None:
    """Choose exactly one model: the best candidate that meets every goal, or the parent.

    A goal is a metric, one of four words and a number: "accuracy threshold 0.95" (at least, or at most where less is
    better), "latency min_improvement 20%", "accuracy max_degradation 0.01". The last two compare with the parent, in
    the metric's own unit or in percent of the parent's value. Any measured metric can be named: those of the
    evaluation ("quality" stands for its main one), and latency, latency_p90, latency_p99 (ms, batch size 1),
    throughput (examples a second, largest batch), size, size_gzipped, memory (bytes), load (s) and error (largest
    difference to the parent's output). A fourth kind, "accuracy max_regression 1%", holds every model, the parent too,
    against the median of what earlier blessed runs chose, and is missed only where that is beyond doubt, since they
    were judged on other data; speed is compared with runs on the same CPU, threads and batch sizes.

    Among the candidates that meet the goals and are proven better than the parent at the objective, the best is
    chosen, and of those that cannot be told from it the smallest. When none is proven better, the parent stays. It is
    blessed when it meets the thresholds, which are the goals that apply to it; where it does not, the best candidate
    that meets the goals is chosen, better at the objective than the parent or not.

    Args:
        baseline: The parent that the candidates are compared with; always a candidate itself.
        candidates: The other models, as they were given to evaluate and benchmark.
        evaluation: How well they predict.
        benchmark: How fast and how large they are.
        selected: The chosen model, whole, with its card.
        decision: ``decision.json``, with a reason for each model, and ``report.html``.
        blessing: Whether the chosen model may be pushed, as TFX's ModelBlessing and InfraBlessing say it.
        goals: What a candidate must satisfy.
        objective: What the chosen model is best at.
        confidence: What a goal is held against: the bad end of the interval, where one was measured, so that a goal
            met is a goal proven; or the measured point alone, for when the examples are few and you accept the risk.
        history: The folder that `push_model` keeps versions and the numbers of each run in, its ``destination``.
            Without it, or before three runs in it were blessed, nothing is called a regression.
        last: How many of the newest blessed runs are looked at.
        watch: Goals that are told of when they are missed, and keep nothing from being blessed. The chosen model is
            held against what was chosen earlier, the parent against earlier parents.
        layout: As `push_model` is given it: a model in a format that its server does not load is not chosen, whatever
            it measures, so that the best of the others is pushed.

    Raises:
        ComponentError: When a goal cannot be read or its metric was not measured, when a report does not hold one
            of the models, or when a file of the history is damaged.
    """
    from tfopt.components.select_model.decide import Question, decide
    from tfopt.components.select_model.output_model import hand_on
    from tfopt.components.select_model.report import write_report

    if history and is_remote(history):
        raise ComponentError(
            f"select_model: history={history}",
            "a folder on this machine, mounted if need be",
            "mount the store or volume and pass its path, as to push_model",
        )
    runs = past.read_runs(history, last) if history else []
    question = Question(read_goals(goals), objective, confidence == "interval", read_goals(watch), runs, layout)
    verdict = decide([baseline, *candidates], evaluation.read(), benchmark.read(), question)
    hand_on(verdict.chosen, verdict.content["selected"], selected)
    content = verdict.content | {"selected_digest": Model(selected.path).digest}
    decision.write(content)
    write_report(decision, [baseline, *candidates], evaluation, benchmark)
    _bless(blessing, content)
    log, regressions = logging.getLogger("tfopt"), content["history"]["regressions"]
    log.info("%s", content["reason"])
    for said in regressions:
        log.warning("regression: %s", said)
    decision.metadata |= {
        "selected": content["selected"],
        "blessed": int(content["blessed"]),
        "reason": content["reason"],
        "regressions": len(regressions),
    }


def _bless(blessing: Blessing, content: dict[str, Any]) -> None:
    """Say it as TFX does: a marker file for people, an integer property for Pusher."""
    parent = next(row for row in content["models"] if row["parent"])
    facts = {
        "blessed": content["blessed"],
        "reason": content["reason"],
        "model_digest": content["selected_digest"],
        "parent_blessed": parent["passed"],  # for push_model, should the chosen one turn out not to be servable
    }
    blessing.write(facts)
    (blessing.path / ("BLESSED" if content["blessed"] else "NOT_BLESSED")).touch()
    blessing.metadata |= {"blessed": int(bool(content["blessed"])), "reason": content["reason"]}
