"""Profile a training: measure the parts of a step, find the bottleneck, and try variations against it, in turns."""

import contextlib
import logging
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tfopt.components.profile_training.bottleneck import LARGER, USUAL, StepTimes, find_bottleneck
from tfopt.components.profile_training.parameters import Pace
from tfopt.components.profile_training.report import write_findings
from tfopt.components.profile_training.trace_events import MAX_LISTED, Loop, OperationTimes
from tfopt.components.profile_training.training_variant import TrainingVariant, Variation, combine, list_variations
from tfopt.errors import ComponentError
from tfopt.measurement.machine_fingerprint import fingerprint
from tfopt.measurement.speedup import LEVEL, hodges_lehmann, speedup
from tfopt.processes.worker_process import CallFailed, WorkerProcess
from tfopt.reports.evaluation_report import Estimate
from tfopt.reports.training_plan import LoopTime, PartTime, StepParts, TrainingPlanReport, VariationResult
from tfopt.value_types import JsonObject

PARTS = ("real", "model", "graph", "larger", "usual", "input")
OPTIONAL_PARTS = ("graph", "larger", "usual")
READING_PARTS = ("real", "input")
TRACED_STEPS = 20
WORKER = "tfopt.components.profile_training"  # the module that a process runs
T = TypeVar("T")

log = logging.getLogger(__name__)


def profile_steps(base: TrainingVariant, pace: Pace, target: Path) -> TrainingPlanReport:
    """Profile a training, and return the plan with everything that was measured.

    The trace of the profiler is written into the folder ``trace`` of the target. Raise ComponentError if the training
    itself cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="tfopt-") as name:
        folder = Path(name)
        with start_process(Variation("as it is", base, "plan"), folder, 0) as process:
            times, facts, parts = diagnose(process, base, pace, target / "trace")
            bottleneck = find_bottleneck(times)
            log.info("%s", bottleneck.sentence)
            base = replace(base, count=facts["count"])
            base_run = VariationRun(Variation("as it is", base, "plan"), process)
            variations = list_variations(bottleneck.name, base, times, facts)
            results = compare_variations(base_run, variations, pace, folder)
            combination = combine(base, _winners(variations, results))
            if combination:
                variations = [*variations, combination]
                results += compare_variations(base_run, [combination], pace, folder)
            memory = process.call("memory")
    settings = choose_settings(base, variations, results)
    return TrainingPlanReport(
        bottleneck=bottleneck,
        findings=write_findings(bottleneck, times, results, facts, settings),
        settings=settings,
        baseline=base.planned() | {"batch_size": base.batch_size, "deterministic": base.deterministic},
        step_ms=StepParts(times.wait, times.host, times.device, times.step),
        parts=parts,
        stages_ms=dict(times.stages),
        fixed_ms=times.fixed,
        operations_ms=dict(list(times.spent.items())[:MAX_LISTED]),
        layers_ms=dict(list(times.parts.items())[:MAX_LISTED]),
        loops=list(times.loops),
        trials=results,
        memory_bytes=memory,
        examples=facts["count"],
        first_step_s=facts["first_step_s"],
        devices=facts["gpus"] or ["CPU"],
        environment=fingerprint(),
        interval={"method": "Hodges-Lehmann, signed-rank", "level": LEVEL, "min_effect": pace.min_effect},
    )


def diagnose(
    process: WorkerProcess, base: TrainingVariant, pace: Pace, trace: Path
) -> tuple[StepTimes, Mapping[str, Any], dict[str, PartTime]]:
    """Return the step times, the facts of `Worker.build`, and the times of the parts, measured interleaved."""
    try:
        facts = process.call("build", base)
        once = READING_PARTS if facts["slow"] else ()
        slow = {part: [process.call("burst", part, pace.turn_seconds)] for part in once}
        loops: list[Loop] = process.call("loops")
        stages = process.call("stages")
        is_small = LARGER * base.batch_size < USUAL
        parts = [part for part in PARTS if part not in slow and (is_small or part != "usual")]
        seconds = slow | _measure_parts(process, pace, parts)
        beginning = process.call("beginning")
        lines = {loop.line: loop.operations for loop in loops if loop.where == "step"}
        steps = min(TRACED_STEPS, max(2, int(2 / np.median(seconds["real"]))))
        operations: OperationTimes = process.call("trace", str(trace), steps, lines)
    except CallFailed as failure:
        received = f"profile_training: {failure}"
        fix = "correct what the lines above show; train --debug shows the whole traceback"
        raise ComponentError(received, "a training that runs: its steps are measured as they are", fix) from failure
    medians = {part: float(np.median(each)) * 1e3 for part, each in seconds.items()}
    from_build = {name: facts[name] for name in ("epoch", "cached", "eager", "weights")}
    times = StepTimes(
        **from_build,
        batch_size=base.batch_size,
        prefetch=base.prefetch,
        step=medians["real"],
        model=medians["model"],
        graph=None if facts["eager"] else medians.get("graph"),
        larger=medians.get("larger"),
        usual=medians.get("usual"),
        input=medians["input"],
        stages={stage: each * 1e3 for stage, each in stages.items()},
        beginning=beginning * 1e3,
        loops=[_loop_time(loop, operations.by_line) for loop in loops],
        spent=operations.by_kind,
        forward=operations.forward,
        parts=operations.by_part,
        gpu=operations.gpu,
    )
    real = seconds["real"]
    part_times = {
        part: PartTime(medians[part], _ratio(real, each) if len(real) == len(each) > 1 else None)
        for part, each in seconds.items()
    }
    return times, facts, part_times


def choose_settings(base: TrainingVariant, variations: list[Variation], results: list[VariationResult]) -> JsonObject:
    """Return the changed settings of the fastest variation that a plan may contain; empty if none is faster."""
    winners = _winners(variations, results)
    return winners[0].variant.changes(base) if winners else {}


@dataclass
class VariationRun:
    """A variation with its process: seconds per example by round, peak memory in bytes, and why it is not measured."""

    variation: Variation
    process: WorkerProcess
    seconds: list[float] = field(default_factory=list)
    memory: int = 0
    error: str | None = None

    def call(self, *arguments: Any) -> Any:
        """Call a method of its worker; a failure is stored as `error`, and None is returned."""
        try:
            return self.process.call(*arguments)
        except (CallFailed, ComponentError) as failure:
            self.error = failure.received if isinstance(failure, ComponentError) else str(failure)
            log.info("%s cannot be measured: %s", self.variation.name, self.error.splitlines()[0])
            return None


def start_process(variation: Variation, folder: Path, number: int) -> WorkerProcess:
    """Start the process of a variation, which ``with`` ends; nothing is built in it yet."""
    environment = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "2", **variation.environment}
    return WorkerProcess(WORKER, log=folder / f"{number}.log", environment=environment)


def shuffled_turns(items: Sequence[T], pace: Pace) -> Iterator[T]:
    """Yield all items once in each round, in random order."""
    generator, order = random.Random(pace.seed), list(items)
    for _ in range(pace.rounds):
        generator.shuffle(order)
        yield from order


def compare_variations(
    base: VariationRun, others: Sequence[Variation], pace: Pace, folder: Path
) -> list[VariationResult]:
    """Measure each variation interleaved with the base, whose process is ready."""
    with contextlib.ExitStack() as stack:
        runs = [base]
        for variation in others:
            number = len(list(folder.glob("*.log")))
            run = VariationRun(variation, stack.enter_context(start_process(variation, folder, number)))
            log.info("trying: %s", variation.name)
            run.call("build", variation.variant)
            runs.append(run)
        base.seconds.clear()
        for run in shuffled_turns(runs, pace):
            seconds = None if run.error else run.call("burst", "real", pace.turn_seconds)
            if seconds is not None:
                run.seconds.append(seconds / run.variation.variant.batch_size)
        if base.error:
            raise ComponentError(base.error, "a training that runs", "correct what the lines above show")
        for run in runs[1:]:
            run.memory = (run.call("memory") or {}).get("process", 0) if not run.error else 0
    return [_result(run, base, pace.min_effect) for run in runs[1:]]


def _winners(variations: list[Variation], results: list[VariationResult]) -> list[Variation]:
    """Return the faster variations that a plan may contain, the fastest first."""
    speedups = [(one, result.speedup) for one, result in zip(variations, results, strict=True) if result.speedup]
    faster = [(one, speedup.value) for one, speedup in speedups if speedup.verdict == "faster"]
    return [one for one, _ in sorted(faster, key=lambda pair: -pair[1]) if one.where == "plan"]


def _measure_parts(process: WorkerProcess, pace: Pace, parts: list[str]) -> dict[str, list[float]]:
    """Return the seconds of a step, or of a batch, by part and round. Parts that cannot be measured are left out."""
    seconds: dict[str, list[float]] = {part: [] for part in parts}
    for part in shuffled_turns(parts, pace):
        if part in seconds:
            try:
                seconds[part].append(process.call("burst", part, pace.turn_seconds))
            except CallFailed as failure:
                if part not in OPTIONAL_PARTS:
                    raise
                log.info("the part %s cannot be measured: %s", part, str(failure).splitlines()[0])
                del seconds[part]
    return seconds


def _loop_time(loop: Loop, line_ms: Mapping[int, float]) -> LoopTime:
    facts = {each.name: getattr(loop, each.name) for each in fields(LoopTime)}
    return LoopTime(**facts | {"ms": line_ms.get(loop.line, 0.0) if loop.where == "step" else None})


def _ratio(real: list[float], part: list[float]) -> Estimate:
    log_ratios = np.log(np.array(real)) - np.log(np.array(part))
    value, low, high = (float(end) for end in np.exp(hodges_lehmann(log_ratios)))
    return Estimate(value, low, high)


def _result(run: VariationRun, base: VariationRun, min_effect: float) -> VariationResult:
    ratio = None
    if not run.error:
        ratio = speedup(np.array(base.seconds), np.array(run.seconds), min_effect=min_effect)
    variation = run.variation
    return VariationResult(
        name=variation.name,
        where=variation.where,
        note=variation.note,
        settings=variation.variant.planned() | {"batch_size": variation.variant.batch_size},
        speedup=ratio,
        example_us=float(np.median(run.seconds)) * 1e6 if ratio else None,
        memory_bytes=run.memory,
        error=run.error,
    )
