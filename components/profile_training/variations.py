"""What could help against a bottleneck: settings to try, and who can set them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tfopt.components.profile_training.bottleneck import LARGER, Measured
from tfopt.components.profile_training.training_variant import Setup

ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
MANY = 16  # steps in one call
READY = 8  # batches
LONGER = 16  # times as many steps in an epoch

INPUT = ("slow reading", "slow parsing", "slow preprocessing", "slow batching", "no overlap")
STEPS = ("small batch", "tiny model")


@dataclass(frozen=True)
class Variation:
    """One other setting.

    Attributes:
        name: In words.
        setup: The same training with it.
        where: Who sets it: the ``plan``, or whoever writes the ``module``, sets the ``environment``, prepares the
            ``examples``, or chooses the ``batch`` (which changes what is learnt).
        note: Why it is not in the plan.
        environment: Variables of its process.
    """

    name: str
    setup: Setup
    where: Literal["plan", "module", "environment", "examples", "batch"]
    note: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def variations(name: str, base: Setup, found: Measured, built: Mapping[str, Any]) -> list[Variation]:
    """What is tried against a bottleneck of this name.

    Args:
        name: Of the bottleneck.
        base: The training as it was measured.
        found: What was measured of it.
        built: What its process said of the machine and the model.
    """
    if name in INPUT:
        return list(_reading(base, found))
    if name == "short epochs":
        return [_longer(base), *_reading(base, found)]
    if name in ("python", "loop"):
        return [*_code(base, found), *_compiled(base, built)]
    if name in STEPS:
        return [*_more_at_once(base), *_compiled(base, built)]
    return [*_precisions(base, built), *_compiled(base, built), *_machine(base, built), *_larger(base)]


def _longer(base: Setup) -> Variation:
    said = (
        f"have more of them, or each of them {LONGER} times, and train for so many fewer epochs; "
        "in a loop of your own keep one iterator over dataset.repeat()"
    )
    return Variation(f"epochs {LONGER} times as long", replace(base, repeated=LONGER), "examples", said)


def _reading(base: Setup, found: Measured) -> Iterator[Variation]:
    cores = len(os.sched_getaffinity(0))
    if not found.cached:
        for cache in ("memory", "disk"):
            yield Variation(f"examples cached {PLACES[cache]}", replace(base, cache=cache), "plan")
    ready = READY if base.prefetch >= 2 else 2
    if base.prefetch < ready:
        yield Variation(f"{ready} batches ready", replace(base, prefetch=ready), "plan")
    if base.threads and base.threads < cores:
        yield Variation(f"{cores} threads read", replace(base, threads=cores), "plan")


PLACES = {"memory": "in memory", "disk": "on disk"}


def _code(base: Setup, found: Measured) -> Iterator[Variation]:
    if found.eager:
        said = "take run_eagerly=True out of compile()"
        yield Variation("compiled into a graph", replace(base, graph=True), "module", said)
    for loop in found.loops:
        if loop["kind"] == "map_fn" and loop["where"] == "step":
            said = f"use tf.vectorized_map at line {loop['line']}, or operations on the whole batch"
            yield Variation("maps vectorized", replace(base, vectorized=True), "module", said)
            return


def _more_at_once(base: Setup) -> Iterator[Variation]:
    yield from _larger(base)
    said = f"pass steps_per_execution={MANY} to compile()"
    yield Variation(f"{MANY} steps in one call", replace(base, steps_per_execution=MANY), "module", said)


def _larger(base: Setup) -> Iterator[Variation]:
    size = LARGER * base.batch_size
    said = "it changes what is learnt: raise the learning rate with it, and look at the validation"
    yield Variation(f"batches of {size}", replace(base, batch_size=size), "batch", said)


def _compiled(base: Setup, built: Mapping[str, Any]) -> Iterator[Variation]:
    if built["jit_compile"]:
        yield Variation("without XLA", replace(base, jit_compile="off"), "plan")
        return
    compiled = replace(base, jit_compile="on", deterministic=False)
    if not base.deterministic:
        yield Variation("compiled by XLA", compiled, "plan")
        return
    said = "it gives up that the same seed gives the same weights: pass deterministic=False"
    yield Variation("compiled by XLA", compiled, "module", said)


def _precisions(base: Setup, built: Mapping[str, Any]) -> Iterator[Variation]:
    for precision in built["supported"][1:]:
        if precision != base.precision:
            yield Variation(precision.replace("_", " "), replace(base, precision=precision), "plan")


def _machine(base: Setup, built: Mapping[str, Any]) -> Iterator[Variation]:
    if built["gpus"]:
        return
    for value, words in (("1", "on"), ("0", "off")):
        if os.environ.get(ONEDNN) is None or os.environ[ONEDNN] != value:
            said = f"set {ONEDNN}={value} before the step starts"
            yield Variation(f"oneDNN {words}", base, "environment", said, {ONEDNN: value})


def combined(base: Setup, winners: Sequence[Variation]) -> Variation | None:
    """All settings that a plan may hold and that proved faster, the best first, at once; None for fewer than two."""
    changes: dict[str, Any] = {}
    for winner in winners:
        changes = winner.setup.changes(base) | changes
    if len(winners) < 2 or changes == winners[0].setup.changes(base):
        return None
    return Variation("together", replace(base, **changes), "plan")
