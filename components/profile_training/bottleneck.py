"""Find the bottleneck of a training step from measured times, and describe it in a sentence with the numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfopt.components.profile_training.trace_events import OPTIMIZER, GpuTimes
from tfopt.reports.training_plan import Bottleneck, LoopTime

MIN_WAIT = 0.25  # of a step; with a shorter wait it is not input-bound
MIN_CODE = 0.25  # of a step: what Python that the graph calls, or a loop, must take to be the bottleneck
MAX_EXPLAINED = 3.0  # times the sum of all input stages: a longer wait is not caused by them
OVERLAP = 1.25  # times the longer of input and model: the most that a step takes if they overlap
MIN_PART = 0.5  # of the time of a step's operations: what the optimizer, or one layer, must take to be the bottleneck
MIN_GPU = 0.25  # of a step: the copies, or the idle time of a GPU, that are the bottleneck
MIN_FIXED = 0.5  # of the time of a model's step: a larger fixed cost exceeds the cost of the examples
USUAL = 64  # a batch size that is not small
LARGER = 4  # times the batch size, to separate a step's fixed cost from the cost per example
COPIES, LAUNCHES = "copies", "kernel launches"
STAGES = {"read": "slow reading", "parse": "slow parsing", "preprocess": "slow preprocessing", "batch": "slow batching"}
LOOP_KINDS = {
    "python": "a call of Python from the graph",
    "map_fn": "a map over slices, one after the other",
    "while": "a loop",
    "unrolled": "a Python loop that repeats its operations in the graph",
}


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds of one step, and other measured facts that determine the bottleneck."""

    batch_size: int
    prefetch: int
    step: float
    model: float  # the model alone, on a batch in memory
    graph: float | None  # the same with many steps in one call, without Python; None if it cannot be measured
    larger: float | None  # the model alone on a batch `LARGER` times as large; None if it cannot be measured
    # the model alone on a batch of `USUAL`; None if it cannot be measured, or the larger batch has this size
    usual: float | None
    input: float  # a batch at full speed, without training
    stages: Mapping[str, float]  # a batch in each of `STAGES` alone, without a cache
    epoch: int  # number of steps in an epoch
    # how much longer the first step of an epoch takes than the others; its time if there are no others
    beginning: float
    cached: bool  # True if prepared examples are cached after the first epoch
    eager: bool
    # loops found by `scan_graphs`; those of the step with their milliseconds in the profiler's trace
    loops: Sequence[LoopTime]
    spent: Mapping[str, float]  # milliseconds of operations by kind in the profiler's trace, summed over threads
    forward: float  # milliseconds of all operations except gradients in the trace
    # milliseconds of operations by layer, and of the optimizer, in the trace
    parts: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)  # number of trained weights by layer, the largest first
    gpu: GpuTimes | None = None

    @property
    def wait(self) -> float:
        """The time that input adds to a step."""
        return max(0.0, self.step - self.model)

    @property
    def epoch_start(self) -> float:
        """The part of `wait` that the beginnings of epochs cause, divided among all steps."""
        return min(self.wait, max(0.0, self.beginning) / self.epoch)

    @property
    def host(self) -> float:
        """The time that Python adds to a step."""
        return 0.0 if self.graph is None else min(max(0.0, self.model - self.graph), self.step)

    @property
    def device(self) -> float:
        """The time of the model's operations: the rest of the step."""
        return max(0.0, self.step - self.wait - self.host)

    @property
    def fixed(self) -> float:
        """The time of the model's step without any example, extrapolated from two batch sizes."""
        if self.larger is None:
            return 0.0
        per_example = max(0.0, self.larger - self.model) / ((LARGER - 1) * self.batch_size)
        return max(0.0, self.model - per_example * self.batch_size)


def find_bottleneck(times: StepTimes) -> Bottleneck:
    """Return the longest part that is long enough to be a bottleneck; the model if there is none."""
    own = _code_bottleneck(times) or _gpu_bottleneck(times)
    own = own or _optimizer_bottleneck(times) or _small_step_bottleneck(times)
    wait = times.wait / times.step
    if wait >= MIN_WAIT and (own is None or wait >= own.share):
        return _input_bottleneck(times, wait)
    return own or _model_bottleneck(times)


def _input_bottleneck(times: StepTimes, share: float) -> Bottleneck:
    summary = f"input-bound: {share:.0%} of a step of {times.step:.3g} ms waits for data; "
    stages = {"batch": times.input} if times.cached else times.stages
    slowest = max(stages, key=lambda stage: stages[stage])
    explained = times.stages["batch"] if times.cached else sum(times.stages.values())
    if times.epoch_start >= MIN_WAIT * times.step and times.wait > MAX_EXPLAINED * explained:
        steps = f"{times.epoch} step{'s' * (times.epoch > 1)}"
        wait = f"each epoch, of {steps}, begins with a wait of {times.epoch_start * times.epoch:.3g} ms"
        reason = f"{wait}, and all stages of the input together take {explained:.3g} ms a batch"
        return Bottleneck("short epochs", share, summary + reason)
    hidden = min(times.wait, times.model)  # the time a step would save if input and model overlapped
    is_sequential = times.prefetch == 0 and times.step > OVERLAP * max(times.input, times.model)
    if is_sequential and hidden >= MIN_WAIT * times.step and (times.cached or OVERLAP * hidden >= stages[slowest]):
        reason = f"batches add {times.wait:.3g} ms and the model takes {times.model:.3g} ms, one after the other"
        return Bottleneck("no overlap", share, summary + reason)
    name = STAGES[slowest]
    if times.cached:
        reason = f"examples are cached, and shuffling and batching alone take {times.input:.3g} ms"
        return Bottleneck(name, share, summary + reason)
    reason = f"{name.split()[1]} alone takes {stages[slowest]:.3g} ms a batch"
    loops = [loop for loop in times.loops if loop.where == "preprocess"]
    if name == "slow preprocessing" and loops:
        reason += f"; line {loops[0].line} of the module is {LOOP_KINDS[loops[0].kind]}"
    return Bottleneck(name, share, summary + reason)


def _code_bottleneck(times: StepTimes) -> Bottleneck | None:
    """Return the bottleneck if it is Python, or a loop whose rounds are independent."""
    if times.eager:
        reason = (
            f"the module runs eagerly: Python creates each of a step's operations again, {times.step:.3g} ms in all"
        )
        return Bottleneck("python", min(1.0, times.model / times.step), f"bound by Python: {reason}")
    own = [loop for loop in times.loops if loop.where == "step"]
    calls = [loop for loop in own if loop.kind == "python"]
    python = sum(loop.ms or 0.0 for loop in calls)
    if python >= MIN_CODE * times.step:
        line = max(calls, key=lambda loop: loop.ms or 0.0).line
        reason = f"{python:.3g} ms of a step of {times.step:.3g} ms, at line {line} of the module"
        return Bottleneck("python", min(1.0, python / times.step), f"bound by Python that the graph calls: {reason}")
    loops = [loop for loop in own if loop.independent]
    if loops:
        slowest = max(loops, key=lambda loop: _forward_share(loop, times))
        part = _forward_share(slowest, times)  # its gradient has the same share of all gradients
        share = part * times.device / times.step
        if share >= max(MIN_CODE, times.host / times.step):
            text = f"{part:.0%} of what the operations of a step of {times.step:.3g} ms take"
            reason = f"line {slowest.line} of the module is {LOOP_KINDS[slowest.kind]}, {text}: {slowest.code}"
            return Bottleneck("loop", share, f"bound by a loop over slices: {reason}")
    return None


def _forward_share(loop: LoopTime, times: StepTimes) -> float:
    """Return a loop's share of the forward pass. Time missing in the trace is divided evenly among all operations."""
    missing = max(0.0, times.device - sum(times.spent.values()))
    forward = times.forward + missing * loop.forward
    return min(1.0, ((loop.ms or 0.0) + missing * loop.runs) / forward) if forward else 0.0


def _optimizer_bottleneck(times: StepTimes) -> Bottleneck | None:
    """Return the bottleneck if the update of the weights takes most of the operations' time, whatever the batch."""
    spent = sum(times.spent.values())
    part = times.parts.get(OPTIMIZER, 0.0) / spent if spent else 0.0
    share = part * times.device / times.step
    if part < MIN_PART or share < MIN_PART:
        return None
    total, (largest, count) = sum(times.weights.values()), next(iter(times.weights.items()), ("", 0))
    reason = f"{part:.0%} of what the operations of a step of {times.step:.3g} ms take updates {_count(total)} weights"
    if count > total / 2:
        reason += f", {count / total:.0%} of them in {largest}"
    return Bottleneck(OPTIMIZER, share, f"bound by the optimizer: {reason}, at each step and whatever the batch")


def _gpu_bottleneck(times: StepTimes) -> Bottleneck | None:
    """Return the bottleneck if the GPU copies, or waits for the CPU to launch kernels, instead of running them."""
    if times.gpu is None:
        return None
    copies = times.gpu.copies / times.step
    idle = max(0.0, times.device - times.gpu.kernels - times.gpu.copies) / times.step
    if copies >= max(MIN_GPU, idle):
        reason = f"{copies:.0%} of a step of {times.step:.3g} ms, in which no kernel runs"
        fix = "store and send smaller types, such as uint8, and convert them in the model"
        return Bottleneck(COPIES, copies, f"bound by copies between CPU and GPU: {reason}; {fix}")
    if idle >= MIN_GPU:
        number = f"{times.gpu.launches:.0f} kernels of {1e3 * times.gpu.kernels / max(times.gpu.launches, 1):.3g} µs"
        reason = f"the GPU is idle for {idle:.0%} of a step of {times.step:.3g} ms, which has {number} on average"
        return Bottleneck(LAUNCHES, idle, f"bound by kernel launches: {reason}")
    return None


def _count(number: int) -> str:
    return f"{number / 1e6:.3g} million" if number >= 1e6 else f"{number:,}"


def _small_step_bottleneck(times: StepTimes) -> Bottleneck | None:
    """Return the bottleneck if the cost of a step hardly depends on the number of its examples."""
    fixed, size = times.fixed, max(USUAL, times.batch_size)
    if fixed < MIN_FIXED * times.model:
        return None
    summary = f"bound by the fixed cost of a step: {fixed:.3g} of {times.model:.3g} ms"
    usual = times.usual or fixed + (times.model - fixed) / times.batch_size * size
    if fixed >= MIN_FIXED * usual:
        reason = f"the model is tiny: the same holds with batches of {size}"
        return Bottleneck("tiny model", fixed / times.step, f"{summary}; {reason}")
    reason = f"a batch of {times.batch_size} is too small for this model"
    return Bottleneck("small batch", fixed / times.step, f"{summary}; {reason}")


def _model_bottleneck(times: StepTimes) -> Bottleneck:
    share, spent = times.device / times.step, sum(times.spent.values())
    kinds = ", ".join(list(times.spent)[:3])
    sentence = f"bound by the model: {share:.0%} of a step of {times.step:.3g} ms is its operations"
    sentence += f", and the GPU computes for {times.gpu.kernels / times.step:.0%} of it" if times.gpu else ""
    sentence += f" (the longest: {kinds})" if kinds else ""
    part, time = next(iter(times.parts.items()), ("", 0.0))
    if spent and time / spent >= MIN_PART:
        sentence += f"; {time / spent:.0%} of their time is {'' if part == OPTIMIZER else 'the layer '}{part}"
    return Bottleneck("model", share, sentence)
