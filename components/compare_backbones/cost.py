"""What each backbone costs untrained: counted, and timed in each runtime beside the others."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfopt.artifacts import Benchmark, Examples, Model
from tfopt.component import find
from tfopt.components.compare_backbones import untrained_models as building
from tfopt.components.compare_backbones.budget import Budget
from tfopt.components.compare_backbones.entry import Entry, beside_each_other, in_a_line
from tfopt.components.compare_backbones.request import Question
from tfopt.errors import ComponentError

TOGETHER = 6  # models alive at once, each in a process with its runtime

log = logging.getLogger("tfopt")


def cost(entries: Sequence[Entry], asked: Question, examples: Examples | None, budget: Budget) -> dict[str, Any]:
    """Fill in what each backbone consists of and takes; return where it was measured."""
    made: dict[str, dict[str, Path]] = {kind: {} for kind in asked.present}
    for number, entry in enumerate(entries, 1):
        log.info("[%d/%d, %s] %s: building and exporting", number, len(entries), budget, entry.name)
        _make(entry, asked, examples, made, budget)
    environment: dict[str, Any] = {}
    for kind, places in made.items():
        there = [entry for entry in entries if entry.name in places]
        for start in range(0, len(there), TOGETHER):
            some = there[start : start + TOGETHER]
            log.info("[%s] measuring in %s: %s", budget, kind, ", ".join(entry.name for entry in some))
            environment = _time(some, kind, places, asked, examples, budget) or environment
    for entry in entries:
        if not entry.error and entry.fastest is None:
            entry.error = "; ".join(f"{kind}: {row['error']}" for kind, row in entry.speed.items())
    return environment


def _make(
    entry: Entry, asked: Question, examples: Examples | None, made: dict[str, dict[str, Path]], budget: Budget
) -> None:
    try:
        entry.counted = building.build(entry.module, asked, examples, entry.place, budget)
    except ComponentError as error:
        entry.error = in_a_line(error)
        log.info("%s drops out: %s", entry.name, entry.error)
        return
    for kind in made:
        try:
            made[kind][entry.name] = building.export(entry.place, kind, examples, budget)
        except ComponentError as error:
            entry.speed[kind] = {"error": in_a_line(error)}
            log.info("%s: no %s: %s", entry.name, kind, in_a_line(error))


def _time(
    entries: Sequence[Entry],
    kind: str,
    places: Mapping[str, Path],
    asked: Question,
    examples: Examples | None,
    budget: Budget,
) -> dict[str, Any]:
    environment: dict[str, Any] = {}
    found = beside_each_other(entries, _measuring(kind, places, asked, examples, budget, environment))
    for entry in entries:
        row = found[entry.name]
        entry.speed[kind] = {"error": row} if isinstance(row, str) else row
    return environment


def _measuring(
    kind: str,
    places: Mapping[str, Path],
    asked: Question,
    examples: Examples | None,
    budget: Budget,
    environment: dict[str, Any],
) -> Callable[[Sequence[Entry]], Sequence[dict[str, Any]]]:
    def measure(entries: Sequence[Entry]) -> Sequence[dict[str, Any]]:
        budget.left()
        models = [Model(places[entry.name]) for entry in entries]
        report = entries[0].place / f"benchmark {kind}"
        find("benchmark")(
            baseline=models[0],
            candidates=models[1:] or models,  # beside itself where it is the only one
            benchmark=report,
            examples=building.seen(entries[0].place, examples),
            batch_sizes=["1"],
            seconds=asked.seconds,
            threads=asked.threads,
            seed=asked.seed,
        )
        content = Benchmark(report).read()
        environment.update(content["environment"])
        return list(content["models"][: len(models)])

    return measure
