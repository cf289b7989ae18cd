"""Order of the measurements: each model is tried alone, then in each round all start in new processes and take turns.

Large models do so in groups that fit into memory, each with the baseline, which stays loaded until the round ends.

At a few numbers of rounds, fixed in advance, models whose comparisons are decided stop (`interim_looks`).

Rounds that other processes disturbed are run again if comparisons are unstable because of them: a few at each of these
numbers, and after the last round as long as time is left. Whether a round is disturbed does not depend on its times, so
this biases no interval.

The processes are new because the memory that one gets makes a model up to 10 % faster or slower until it ends (ADR 25).
"""

import logging
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.benchmark.comparison import Look
from tfopt.components.benchmark.measured_model import MeasuredModel, RoundLoad
from tfopt.components.benchmark.model_process import Machine
from tfopt.components.benchmark.parameters import TURNS, Settings
from tfopt.components.benchmark.worker import FirstCall, ModelFacts
from tfopt.measurement.interim_looks import LookSchedule
from tfopt.measurement.speedup import FEWEST_ROUNDS
from tfopt.processes.worker_process import CallFailed, WorkerDied

log = logging.getLogger(__name__)

WARM_BURSTS, WARM_TOLERANCE = 3, 0.05  # a model is warm when this many bursts in a row agree within this tolerance
UNRECORDED_SHARE = 0.15  # first part of a turn, which is not recorded
SLOW_RATIO = 5.0  # a call this many times slower than the baseline's, and too long for `FEW_ROUNDS`, is not measured
COSTLY_RATIO = 2.0  # the same for a model whose load and first call take longer than its seconds, in each round
FEW_ROUNDS = 15  # with fewer rounds the differences between processes usually hide a difference of 5 %
GROUP_BYTES = 5 << 29  # memory of the models that are loaded at the same time, unless a single one needs more
REPEATED_SHARE = 0.2  # of the time so far; for as long disturbed rounds are repeated before an early look
OVERTIME = 2.0  # multiple of the planned seconds that may be used before the number of rounds is reduced

InputFile = Callable[[dict[str, TensorSpec]], Path]


def measure_interleaved(
    models: Sequence[MeasuredModel], settings: Settings, input_file: InputFile, machine: Machine | None = None
) -> LookSchedule:
    """Measure every model at every batch size that it supports, and fill in its results. One process works at a time.

    They run on ``machine``, by default this one. The returned schedule of the looks determines the level of each
    interval.

    Raises:
        ComponentError: If the baseline fails.
    """
    measurement = _Measurement(models, settings, input_file, machine or Machine())
    measurement.try_all()
    return measurement.run_rounds()


class _Measurement:
    def __init__(
        self, models: Sequence[MeasuredModel], settings: Settings, input_file: InputFile, machine: Machine
    ) -> None:
        self._models, self._settings, self._input_file = list(models), settings, input_file
        self._baseline = next(model for model in models if model.is_baseline)
        self._others = machine.other_cores(machine.choose_cores(settings.threads))

    def try_all(self) -> None:
        """Load each model once, and leave out what is too slow."""
        for model in self._models:
            with model.recording_failure():
                self._try(model)
            _end_processes([model])
        for model in _remaining(self._models):
            with model.recording_failure():
                self._drop_slow_sizes(model)
        for model in self._models:
            model.open_sizes = set(model.is_warm)

    def run_rounds(self) -> LookSchedule:
        """Run all rounds that are needed and return the schedule of the looks."""
        settings, order = self._settings, self._models
        generator = random.Random(settings.seed)
        schedule, start = LookSchedule.of(self._affordable_rounds()), time.monotonic()
        rounds, deadline = max(schedule.errors), start + OVERTIME * settings.seconds * len(_remaining(order))
        for number in range(rounds):
            if not (remaining := _open_models(order)):
                break
            left = f", {(time.monotonic() - start) / number * (rounds - number):.0f} s left" if number else ""
            models_left = f", {len(remaining)} of {len(order)} models" if len(remaining) < len(order) else ""
            log.info("round %d of at most %d%s%s", number + 1, rounds, models_left, left)
            generator.shuffle(order)
            groups = _memory_groups(order)
            for group in groups:
                generator.shuffle(group)
            self._run_groups(groups, settings.sizes, number)
            if number + 1 in schedule.errors and number + 1 < rounds:
                now = time.monotonic()
                self._repeat_disturbed(schedule, min(deadline, now + REPEATED_SHARE * (now - start)))
                for batch_size in settings.sizes:
                    self._stop_decided(batch_size, schedule)
        self._repeat_disturbed(schedule, deadline)
        return schedule

    def _run_groups(self, groups: Sequence[Sequence[MeasuredModel]], sizes: Iterable[int], number: int) -> None:
        """Run a round in new processes; the baseline remains in that of the first group."""
        for group in groups:
            for model in _remaining(group):
                if not model.process.is_running:
                    with model.recording_failure():
                        self._load(model)
            for batch_size in sizes:
                self._run_turns([model for model in group if batch_size in model.open_sizes], batch_size, number)
            _end_processes(model for model in group if not model.is_baseline)
        _end_processes([self._baseline])

    def _repeat_disturbed(self, schedule: LookSchedule, deadline: float) -> None:
        """Run disturbed rounds again until no comparison is unstable because of them, or the time has passed."""
        attempts = 0
        while time.monotonic() < deadline:
            looks = {size: Look.of(self._models, size, self._settings, schedule) for size in self._settings.sizes}
            unstable = {size: look.find_unstable() for size, look in looks.items()}
            if not any(unstable.values()):
                return
            left = max(deadline - time.monotonic(), 0.0)
            log.info("other processes disturb the measurement: %.0f s left to repeat", left)
            for batch_size, affected in unstable.items():
                disturbed = {
                    number: [model for model in affected if model.round_loads(batch_size)[number].is_disturbed]
                    for number in range(max((len(model.samples[batch_size]) for model in affected), default=0))
                }
                numbers = [number for number, concerned in disturbed.items() if concerned]
                if numbers:
                    number = numbers[attempts % len(numbers)]
                    self._run_groups(_memory_groups([self._baseline, *disturbed[number]]), [batch_size], number)
            attempts += 1

    def _stop_decided(self, batch_size: int, schedule: LookSchedule) -> None:
        if self._settings.objective == "cold_start":  # looks compare calls only
            return
        look = Look.of(self._models, batch_size, self._settings, schedule)
        still_open = look.find_open()
        for model in [model for model in self._models if batch_size in model.open_sizes and model not in still_open]:
            model.open_sizes.remove(batch_size)
            if not model.is_baseline:
                model.notes.append(f"batch size {batch_size}: {look.describe_stop(model)}")

    def _try(self, model: MeasuredModel) -> None:
        log.info("loading %s", model.name)
        model.facts |= self._load(model)
        for batch_size in self._settings.sizes:
            try:
                first: FirstCall = model.process.call("prepare", batch_size)
            except WorkerDied:
                raise
            except CallFailed as failure:
                model.notes.append(f"batch size {batch_size} is not measured: {failure}")
                continue
            model.facts.setdefault("first_call_seconds", first["seconds"])
            model.notes += [f"batch size {batch_size}: output {name!r} is not finite" for name in first["not_finite"]]
            self._warm_up(model, batch_size)
        if not model.is_warm:
            raise CallFailed("; ".join(model.notes))
        model.facts |= model.process.call("facts")

    def _load(self, model: MeasuredModel) -> ModelFacts:
        model.process.renew()
        facts: ModelFacts = model.process.call("load", model.model.uri, model.model.signature, self._settings.threads)
        model.process.call("feed", str(self._input_file(facts.pop("inputs"))))
        model.load_seconds = facts["load_seconds"]
        return facts

    def _warm_up(self, model: MeasuredModel, batch_size: int) -> None:
        """Call a model until consecutive bursts agree, or for half of its measuring time."""
        deadline = time.monotonic() + self._settings.seconds_per_size / 2
        medians: list[float] = []
        is_warm = False
        while not is_warm and (len(medians) < WARM_BURSTS or time.monotonic() < deadline):
            calls, _ = model.process.call("burst", self._settings.turn_seconds, 0.0)
            medians.append(float(np.median(calls)))
            latest = medians[-WARM_BURSTS:]
            is_warm = len(latest) == WARM_BURSTS and max(latest) <= min(latest) * (1 + WARM_TOLERANCE)
            if medians[-1] / 1e9 > 2 * self._longest_call(batch_size, SLOW_RATIO):  # it is not measured, warm or not
                break
        model.is_warm[batch_size] = is_warm
        model.call_seconds[batch_size] = medians[-1] / 1e9

    def _drop_slow_sizes(self, model: MeasuredModel) -> None:
        """Drop the batch sizes at which a model is so slow that measuring it only costs time."""
        start_seconds = model.facts["load_seconds"] + model.facts["first_call_seconds"]
        ratio = COSTLY_RATIO if start_seconds > self._settings.seconds else SLOW_RATIO
        for batch_size, seconds in list(model.call_seconds.items()):
            if seconds > self._longest_call(batch_size, ratio):
                del model.is_warm[batch_size], model.call_seconds[batch_size]
                usual = self._baseline.call_seconds[batch_size]
                reason = f"a call took {seconds:.2g} s during warm-up, {seconds / usual:.1f} times the baseline's"
                model.notes.append(f"batch size {batch_size} is not measured: {reason}")
        if not model.is_warm:
            raise CallFailed("; ".join(model.notes))

    def _longest_call(self, batch_size: int, ratio: float) -> float:
        """Return the seconds of a call above which a batch size is not measured; infinity without a baseline there."""
        usual = self._baseline.call_seconds.get(batch_size, math.inf)
        return max(ratio * usual, self._settings.seconds_per_size / FEW_ROUNDS)

    def _run_turns(self, group: Sequence[MeasuredModel], batch_size: int, number: int) -> None:
        """Warm up each model again, which is quick now, and run one burst of it in every turn.

        A round that a model has already been measured in is replaced if this one is not disturbed. The baseline is in
        the group if it supports the batch size, and may take turns in several groups of a round.
        """
        turn_seconds, starts = self._settings.turn_seconds, dict[str, float]()
        for model in _remaining(group):
            with model.recording_failure():
                first: FirstCall = model.process.call("prepare", batch_size, turn_seconds / 2)
                if model.load_seconds is not None and batch_size == min(model.is_warm):
                    starts[model.name] = model.load_seconds + first["seconds"]
                model.load_seconds = None
        before = self._others.seconds()
        unrecorded = turn_seconds * UNRECORDED_SHARE
        bursts: dict[str, list[tuple[NDArray[np.int64], float]]] = defaultdict(list)
        for turn in range(TURNS):
            for model in _remaining(group[::-1] if turn % 2 else group):
                with model.recording_failure():
                    burst = model.process.call("burst", turn_seconds - unrecorded, unrecorded)
                    bursts[model.name].append(burst)
        elsewhere = self._others.used_share(before)
        samples = {name: np.concatenate([calls for calls, _ in turns]) for name, turns in bursts.items()}
        waited = {name: max(0.0, float(np.mean([share for _, share in turns]))) for name, turns in bursts.items()}
        remaining = _remaining(group)
        baseline = next((model for model in remaining if model.is_baseline), None)
        for model in remaining:
            load = RoundLoad(waited[model.name], waited[baseline.name] if baseline else 0.0, elsewhere)
            paired = samples[baseline.name] if baseline and model is not baseline else None
            model.record(batch_size, number, samples[model.name], paired, load, starts.get(model.name))
        if baseline:
            baseline.baseline_samples = baseline.samples

    def _affordable_rounds(self) -> int:
        """Return the number of rounds, reduced if loads or single calls are slow.

        It is fixed before the first round: a number that depended on the samples would bias the intervals.
        """
        settings, remaining = self._settings, _remaining(self._models)
        loads = sum(model.facts["load_seconds"] + model.facts["first_call_seconds"] for model in remaining)
        calls = [max(settings.turn_seconds, call) for model in remaining for call in model.call_seconds.values()]
        round_seconds = loads + (TURNS + 0.5) * sum(calls)
        affordable = int(OVERTIME * settings.seconds * len(remaining) / round_seconds)
        rounds = min(settings.rounds, max(FEWEST_ROUNDS, affordable))
        if rounds < min(settings.rounds, FEW_ROUNDS):
            for model in remaining:
                note = f"{rounds} rounds instead of {settings.rounds}; each would take {round_seconds:.2g} s"
                model.notes.append(note)
        return rounds


def _memory_groups(models: Sequence[MeasuredModel]) -> list[list[MeasuredModel]]:
    """Split the open models, in their order, into groups of at most `GROUP_BYTES`, each with the baseline."""
    remaining = _open_models(models)
    baseline = next((model for model in remaining if model.is_baseline), None)
    groups: list[list[MeasuredModel]] = []
    for model in remaining:
        if model is not baseline:
            if not groups or sum(other.loaded_bytes for other in [model, *groups[-1]]) > GROUP_BYTES:
                groups.append([baseline] if baseline else [])
            groups[-1].append(model)
    return groups or [remaining]


def _end_processes(models: Iterable[MeasuredModel]) -> None:
    """End the processes of all models before any starts, or it would get the memory that they have just released."""
    for model in models:
        with model.recording_failure():
            model.process.end()


def _remaining(models: Sequence[MeasuredModel]) -> list[MeasuredModel]:
    return [model for model in models if not model.error]


def _open_models(models: Sequence[MeasuredModel]) -> list[MeasuredModel]:
    return [model for model in _remaining(models) if model.open_sizes]
