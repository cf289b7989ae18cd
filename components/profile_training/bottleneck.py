"""What a step waits for most: named from what was measured, in a sentence with the numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WAITS = 0.25  # of a step; less than that is not called input-bound
RUNS = 0.25  # of a step: what Python that the graph calls, or a loop, must take to be named
FAR = 3.0  # times what all stages of the input take together: a wait beyond that is not theirs
OVERLAP = 1.25  # times the longer of input and model: what a step may take where they do overlap
FIXED = 0.5  # of the time of a model's step, whatever the batch: more than what its examples take
USUAL = 64  # a batch that is not small
LARGER = 4  # times the batch, to tell a step's fixed cost from that of an example
STAGES = {
    "read": "slow reading",
    "parse": "slow parsing",
    "preprocess": "slow preprocessing",
    "batch": "slow batching",
}


@dataclass(frozen=True)
class Measured:
    """Milliseconds of one step, and what else the name depends on.

    Attributes:
        step: A real one.
        model: Of the model alone, on a batch that is there.
        graph: The same with Python out of the way; None where that cannot be.
        larger: The model alone on a batch `LARGER` times as large; None where that cannot be.
        usual: The model alone on a batch of `USUAL`; None where that cannot be, or where the larger one is as large.
        input: A batch at full speed, nothing learnt.
        stages: Of a batch in each of `STAGES` alone, nothing else in its way, without a cache.
        epoch: Steps in one.
        beginning: What the first step of an epoch takes longer than the others; all it takes, where there are none.
        cached: Whether examples stay prepared after the first epoch.
        eager: Whether the module runs eagerly.
        loops: As `scanning` found them, those of the step with their milliseconds as the profiler saw them.
        spent: Milliseconds of operations by kind, threads added up, as the profiler saw them.
        forward: All of those that are no gradient's.
    """

    batch_size: int
    prefetch: int
    step: float
    model: float
    graph: float | None
    larger: float | None
    usual: float | None
    input: float
    stages: Mapping[str, float]
    epoch: int
    beginning: float
    cached: bool
    eager: bool
    loops: Sequence[Mapping[str, Any]]
    spent: Mapping[str, float]
    forward: float

    @property
    def wait(self) -> float:
        """What input adds to a step."""
        return max(0.0, self.step - self.model)

    @property
    def begun(self) -> float:
        """What of that is the beginnings of epochs, divided among all steps."""
        return min(self.wait, max(0.0, self.beginning) / self.epoch)

    @property
    def host(self) -> float:
        """What Python adds to a step."""
        return 0.0 if self.graph is None else min(max(0.0, self.model - self.graph), self.step)

    @property
    def device(self) -> float:
        """The rest: the model's operations."""
        return max(0.0, self.step - self.wait - self.host)

    @property
    def fixed(self) -> float:
        """What the model's step would take with no example in it."""
        if self.larger is None:
            return 0.0
        each = max(0.0, self.larger - self.model) / ((LARGER - 1) * self.batch_size)
        return max(0.0, self.model - each * self.batch_size)


@dataclass(frozen=True)
class Bottleneck:
    """Its name, the part of a step it takes, and a sentence."""

    name: str
    share: float
    sentence: str


def bottleneck(found: Measured) -> Bottleneck:
    """Name the longest of what is long enough to have a name of its own; it is the model where nothing is."""
    own = _code(found) or _small(found)
    waits = found.wait / found.step
    if waits >= WAITS and (own is None or waits >= own.share):
        return _input(found, waits)
    return own or _model(found)


def _input(found: Measured, waits: float) -> Bottleneck:
    told = f"input-bound: {waits:.0%} of a step of {found.step:.3g} ms waits for data; "
    stages = {"batch": found.input} if found.cached else found.stages
    slowest = max(stages, key=lambda stage: stages[stage])
    explained = found.stages["batch"] if found.cached else sum(found.stages.values())
    if found.begun >= WAITS * found.step and found.wait > FAR * explained:
        long = f"{found.epoch} step{'s' * (found.epoch > 1)}"
        wait = f"each epoch, of {long}, begins with a wait of {found.begun * found.epoch:.3g} ms"
        said = f"{wait}, and all stages of the input together take {explained:.3g} ms a batch"
        return Bottleneck("short epochs", waits, told + said)
    hidden = min(found.wait, found.model)  # what a step would save if the one were made while the other is computed
    apart = found.prefetch == 0 and found.step > OVERLAP * max(found.input, found.model)
    if apart and hidden >= WAITS * found.step and (found.cached or OVERLAP * hidden >= stages[slowest]):
        both = f"batches add {found.wait:.3g} ms and the model takes {found.model:.3g} ms, one after the other"
        return Bottleneck("no overlap", waits, told + both)
    name = STAGES[slowest]
    if found.cached:
        said = f"examples are cached, and shuffling and batching alone take {found.input:.3g} ms"
        return Bottleneck(name, waits, told + said)
    said = f"{name.split()[1]} alone takes {stages[slowest]:.3g} ms a batch"
    lines = [loop for loop in found.loops if loop["where"] == "preprocess"]
    if name == "slow preprocessing" and lines:
        said += f"; line {lines[0]['line']} of the module is {WORDS[lines[0]['kind']]}"
    return Bottleneck(name, waits, told + said)


WORDS = {
    "python": "a call of Python from the graph",
    "map_fn": "a map over slices, one after the other",
    "while": "a loop",
    "unrolled": "a loop of Python that repeats its operations in the graph",
}


def _code(found: Measured) -> Bottleneck | None:
    """Python, or a loop over slices that need nothing of each other."""
    if found.eager:
        said = f"the module runs eagerly: Python makes each of a step's operations anew, {found.step:.3g} ms in all"
        return Bottleneck("python", min(1.0, found.model / found.step), f"bound by Python: {said}")
    own = [loop for loop in found.loops if loop["where"] == "step"]
    called = [loop for loop in own if loop["kind"] == "python"]
    python = sum(loop["ms"] for loop in called)
    if python >= RUNS * found.step:
        line = max(called, key=lambda loop: float(loop["ms"]))["line"]
        said = f"{python:.3g} ms of a step of {found.step:.3g} ms, at line {line} of the module"
        return Bottleneck("python", min(1.0, python / found.step), f"bound by Python that the graph calls: {said}")
    loops = [loop for loop in own if loop["independent"]]
    if loops:
        worst = max(loops, key=lambda loop: _part(loop, found))
        part = _part(worst, found)  # and its gradient has the same part of gradients
        share = part * found.device / found.step
        if share >= max(RUNS, found.host / found.step):
            took = f"{part:.0%} of what the operations of a step of {found.step:.3g} ms take"
            said = f"line {worst['line']} of the module is {WORDS[worst['kind']]}, {took}: {worst['code']}"
            return Bottleneck("loop", share, f"bound by a loop over slices: {said}")
    return None


def _part(loop: Mapping[str, Any], found: Measured) -> float:
    """Of the forward pass. What the profiler did not see is divided evenly among all operations that run."""
    rest = max(0.0, found.device - sum(found.spent.values()))
    every = found.forward + rest * loop["forward"]
    return min(1.0, (loop["ms"] + rest * loop["runs"]) / every) if every else 0.0


def _small(found: Measured) -> Bottleneck | None:
    """Steps whose cost hardly depends on how many examples are in them."""
    fixed, size = found.fixed, max(USUAL, found.batch_size)
    if fixed < FIXED * found.model:
        return None
    told = f"bound by the cost of a step, whatever is in it: {fixed:.3g} of {found.model:.3g} ms"
    usual = found.usual or fixed + (found.model - fixed) / found.batch_size * size
    if fixed >= FIXED * usual:
        return Bottleneck(
            "tiny model", fixed / found.step, f"{told}; the model is tiny: so it is with batches of {size}"
        )
    said = f"{told}; a batch of {found.batch_size} is too small for this model"
    return Bottleneck("small batch", fixed / found.step, said)


def _model(found: Measured) -> Bottleneck:
    share = found.device / found.step
    kinds = ", ".join(list(found.spent)[:3])
    said = f"bound by the model: {share:.0%} of a step of {found.step:.3g} ms is its operations"
    return Bottleneck("model", share, f"{said} (the longest: {kinds})" if kinds else said)
