"""Variants of a training: its settings, and changes that may help against a bottleneck."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tfopt.components.profile_training.bottleneck import COPIES, LARGER, LAUNCHES, StepTimes
from tfopt.components.profile_training.parameters import TrainingSettings
from tfopt.components.profile_training.trace_events import OPTIMIZER

PLANNED = ("precision", "jit_compile", "cache", "threads", "prefetch")  # settings that a plan may contain
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
STEPS_PER_CALL = 16  # with so many, Python takes no time
PREFETCH = 8  # batches
REPEATS = 16  # times as many steps in an epoch
INPUT_BOTTLENECKS = ("slow reading", "slow parsing", "slow preprocessing", "slow batching", "no overlap")
STEP_BOTTLENECKS = ("small batch", "tiny model", LAUNCHES)


@dataclass(frozen=True, kw_only=True)
class TrainingVariant(TrainingSettings):
    """The settings of one process."""

    examples: str
    module: str
    seed: int  # seed of the weights and of the order of the examples
    count: int = 0  # number of records of the split ``train``, if they have been counted before; 0 otherwise
    vectorized: bool = False  # True to replace ``tf.map_fn`` and ``keras.ops.map`` by their vectorized forms
    graph: bool = False  # True to compile a module that runs eagerly
    # True to use an optimizer that changes only the rows of an embedding that a batch contains
    sparse_updates: bool = False
    steps_per_execution: int = 0  # steps in one call; 0 for the module's setting
    repeated: int = 1  # how many times an epoch contains each example

    def planned(self) -> dict[str, Any]:
        """Return the settings that a plan may contain."""
        return {name: getattr(self, name) for name in PLANNED}

    def changes(self, base: "TrainingVariant") -> dict[str, Any]:
        """Return the settings that a plan may contain and that differ from the base."""
        return {name: value for name, value in self.planned().items() if value != getattr(base, name)}


@dataclass(frozen=True)
class Variation:
    """A change to try."""

    name: str
    variant: TrainingVariant  # the training with the change
    # who can make the change: the ``plan``, the author of the ``module``, the ``environment``, the author of the
    # ``examples``, or the user who chooses the ``batch`` size (which changes the weights)
    where: Literal["plan", "module", "environment", "examples", "batch"]
    note: str = ""  # why it is not in the plan
    environment: Mapping[str, str] = field(default_factory=dict)  # environment variables of its process


def list_variations(
    bottleneck: str, base: TrainingVariant, times: StepTimes, facts: Mapping[str, Any]
) -> list[Variation]:
    """Return the changes of the measured training that may help against a bottleneck; see `Worker.build` for facts."""
    if bottleneck in INPUT_BOTTLENECKS:
        return list(_input_variations(base, times))
    if bottleneck == "short epochs":
        note = (
            f"prepare more of them, or each of them {REPEATS} times, and train for so many fewer epochs; "
            "in a loop of your own use one iterator over dataset.repeat()"
        )
        longer = Variation(f"epochs {REPEATS} times as long", replace(base, repeated=REPEATS), "examples", note)
        return [longer, *_input_variations(base, times)]
    if bottleneck == COPIES:
        return []  # no setting changes what a step needs from the CPU
    xla, batch_size = _xla_variation(base, facts), LARGER * base.batch_size
    if bottleneck in ("python", "loop"):
        return [*_code_variations(base, times), xla]
    note = "it changes the weights: raise the learning rate with it, and check the validation"
    larger_batch = Variation(f"batches of {batch_size}", replace(base, batch_size=batch_size), "batch", note)
    if bottleneck == OPTIMIZER:
        note = (
            "it is another training: check the validation; a lazy form of the module's optimizer, which changes only "
            "the rows of a batch, avoids the same work"
        )
        sgd = Variation("an optimizer without state (SGD)", replace(base, sparse_updates=True), "module", note)
        return [larger_batch, sgd, xla]
    if bottleneck in STEP_BOTTLENECKS:
        note = f"pass steps_per_execution={STEPS_PER_CALL} to compile()"
        variant = replace(base, steps_per_execution=STEPS_PER_CALL)
        return [larger_batch, Variation(f"{STEPS_PER_CALL} steps in one call", variant, "module", note), xla]
    precisions = [
        Variation(precision.replace("_", " "), replace(base, precision=precision), "plan")
        for precision in facts["supported"][1:]
        if precision != base.precision
    ]
    return [*precisions, xla, *_machine_variations(base, facts), larger_batch]


def combine(base: TrainingVariant, winners: Sequence[Variation]) -> Variation | None:
    """Combine all faster settings that a plan may contain, the fastest first; None for fewer than two."""
    changes: dict[str, Any] = {}
    for winner in winners:
        changes = winner.variant.changes(base) | changes
    if len(winners) < 2 or changes == winners[0].variant.changes(base):
        return None
    return Variation("together", replace(base, **changes), "plan")


def _input_variations(base: TrainingVariant, times: StepTimes) -> Iterator[Variation]:
    cores = len(os.sched_getaffinity(0))
    if not times.cached:
        yield Variation("examples cached in memory", replace(base, cache="memory"), "plan")
        yield Variation("examples cached on disk", replace(base, cache="disk"), "plan")
    prefetch = PREFETCH if base.prefetch >= 2 else 2
    if base.prefetch < prefetch:
        yield Variation(f"{prefetch} batches ready", replace(base, prefetch=prefetch), "plan")
    if base.threads and base.threads < cores:
        yield Variation(f"{cores} threads read", replace(base, threads=cores), "plan")


def _code_variations(base: TrainingVariant, times: StepTimes) -> Iterator[Variation]:
    if times.eager:
        note = "remove run_eagerly=True from compile()"
        yield Variation("compiled into a graph", replace(base, graph=True), "module", note)
    for loop in times.loops:
        if loop.kind == "map_fn" and loop.where == "step":
            note = f"use tf.vectorized_map at line {loop.line}, or operations on the whole batch"
            yield Variation("maps vectorized", replace(base, vectorized=True), "module", note)
            return


def _xla_variation(base: TrainingVariant, facts: Mapping[str, Any]) -> Variation:
    if facts["jit_compile"]:
        return Variation("without XLA", replace(base, jit_compile="off"), "plan")
    compiled = replace(base, jit_compile="on", deterministic=False)
    if not base.deterministic:
        return Variation("compiled by XLA", compiled, "plan")
    note = "the same seed no longer gives the same weights: pass deterministic=False"
    return Variation("compiled by XLA", compiled, "module", note)


def _machine_variations(base: TrainingVariant, facts: Mapping[str, Any]) -> Iterator[Variation]:
    if facts["gpus"]:
        return
    for value, state in (("1", "on"), ("0", "off")):
        if os.environ.get(ONEDNN) is None or os.environ[ONEDNN] != value:
            note = f"set {ONEDNN}={value} before the step starts"
            yield Variation(f"oneDNN {state}", base, "environment", note, {ONEDNN: value})
