"""What a step waits for most: named from what was measured, in a sentence with the numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfopt.components.profile_training.tracing import IN_LOOPS, PYTHON

WAITS = 0.25  # of a step; less than that is not called input-bound
RUNS = 0.25  # of a step's time: what Python or a loop must take to be named
OVERLAP = 1.25  # times the longer of input and model: what a step may take where they do overlap
FIXED = 0.5  # of the time of a model's step, whatever the batch
USUAL = 64  # a batch that is not small
LARGER = 4


@dataclass(frozen=True)
class Measured:
    """Milliseconds of one step, and what else the name depends on.

    Attributes:
        step: A real one.
        model: Of the model alone, on a batch that is there.
        graph: The same with Python out of the way; None where that cannot be.
        larger: The model alone on a batch `LARGER` times as large; None where that cannot be.
        input: A batch at full speed, nothing learnt.
        stages: Of a batch to be read, to be parsed too, and to be prepared too, without a cache.
        cached: Whether examples stay prepared after the first epoch.
        eager: Whether the module runs eagerly.
        loops: As `scanning` found them.
        spent: Milliseconds of operations by kind, threads added up, as the profiler saw them.
    """

    batch_size: int
    prefetch: int
    step: float
    model: float
    graph: float | None
    larger: float | None
    input: float
    stages: Mapping[str, float]
    cached: bool
    eager: bool
    loops: Sequence[Mapping[str, Any]]
    spent: Mapping[str, float]

    @property
    def wait(self) -> float:
        """What input adds to a step."""
        return max(0.0, self.step - self.model)

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
    """Name it."""
    waits = found.wait / found.step
    if waits >= WAITS and found.wait >= found.host:
        return _input(found, waits)
    return _code(found) or _small(found) or _model(found)


def _input(found: Measured, waits: float) -> Bottleneck:
    told = f"input-bound: {waits:.0%} of a step of {found.step:.3g} ms waits for data; "
    longer = max(found.input, found.model)
    if found.prefetch == 0 and found.input < OVERLAP * found.model and found.step > OVERLAP * longer:
        both = f"batches take {found.input:.3g} ms and the model {found.model:.3g} ms, one after the other"
        return Bottleneck("no overlap", waits, told + both)
    if found.cached:
        said = f"examples are cached, and shuffling and batching alone take {found.input:.3g} ms"
        return Bottleneck("slow batching", waits, told + said)
    read, parse, prepare = (found.stages[name] for name in ("read", "parse", "prepare"))
    stages = {
        "slow reading": read,
        "slow parsing": parse - read,
        "slow preprocessing": prepare - max(parse, read),
        "slow batching": found.input - prepare,
    }
    name = max(stages, key=lambda stage: stages[stage])
    said = f"{name.split()[1]} takes {stages[name]:.3g} ms of the {found.input:.3g} ms that a batch needs"
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
        return Bottleneck("python", 1.0, f"bound by Python: {said}")
    own = [loop for loop in found.loops if loop["where"] == "step"]
    python = sum(found.spent.get(kind, 0.0) for kind in PYTHON)
    called = [loop for loop in own if loop["kind"] == "python"]
    if called and python >= RUNS * found.step:
        said = f"{python:.3g} ms of a step of {found.step:.3g} ms, at line {called[0]['line']} of the module"
        return Bottleneck("python", min(1.0, python / found.step), f"bound by Python that the graph calls: {said}")
    spent = sum(found.spent.values())
    looping = found.spent.get(IN_LOOPS, 0.0) >= RUNS * spent
    loops = [loop for loop in own if (looping if loop["independent"] else _repeats(loop))]
    if loops:
        worst = max(loops, key=lambda loop: float(loop["share"]))
        said = f"line {worst['line']} of the module is {WORDS[worst['kind']]}: {worst['code']}"
        return Bottleneck("loop", 1 - found.wait / found.step, f"bound by a loop over slices: {said}")
    return None


def _repeats(loop: Mapping[str, Any]) -> bool:
    return bool(loop["kind"] == "unrolled" and loop["share"] >= RUNS)


def _small(found: Measured) -> Bottleneck | None:
    """Steps whose cost hardly depends on how many examples are in them."""
    share = found.fixed / found.model
    if share < FIXED:
        return None
    each = (found.model - found.fixed) / found.batch_size
    told = f"bound by the cost of a step, whatever is in it: {found.fixed:.3g} of {found.model:.3g} ms"
    tiny = found.fixed / (found.fixed + each * max(USUAL, found.batch_size)) >= FIXED
    if tiny:
        said = f"{told}; a batch of {max(USUAL, found.batch_size)} would be too, so the model is tiny"
        return Bottleneck("tiny model", share, said)
    return Bottleneck("small batch", share, f"{told}; a batch of {found.batch_size} is too small for this model")


def _model(found: Measured) -> Bottleneck:
    share = found.device / found.step
    kinds = ", ".join([kind for kind in found.spent if kind != IN_LOOPS][:3])
    said = f"bound by the model: {share:.0%} of a step of {found.step:.3g} ms is its operations"
    return Bottleneck("model", share, f"{said} (the longest: {kinds})" if kinds else said)
