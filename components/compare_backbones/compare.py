"""From names to a comparison: modules written, costs measured, the affordable ones trained, one chosen."""

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfopt.artifacts import Examples
from tfopt.components.compare_backbones.budget import Budget
from tfopt.components.compare_backbones.choice import Choice, choose, too_costly
from tfopt.components.compare_backbones.cost import cost
from tfopt.components.compare_backbones.entry import Entry
from tfopt.components.compare_backbones.keras_modules import file_name, module_text
from tfopt.components.compare_backbones.request import Question
from tfopt.components.compare_backbones.short_training import learn

log = logging.getLogger("tfopt")


def compare(asked: Question, examples: Examples | None, budget: Budget, folder: Path, chosen: Path) -> dict[str, Any]:
    """Compare, write every module below ``folder`` and the chosen one to ``chosen``; return ``comparison.json``.

    Raises:
        ComponentError: See `compare_backbones`.
    """
    for why in asked.missing.values():
        log.info("%s", why)
    work = folder / ".work"  # gone with the output when interrupted
    entries = [_written(backbone, asked, folder, work) for backbone in asked.backbones]
    environment = cost(entries, asked, examples, budget)
    judged: dict[str, Any] = {}
    if examples:
        judged = learn(_affordable(entries, asked), asked, examples, budget, work)
    content, choice = content_of(asked, entries, judged, folder)
    shutil.copyfile(choice.entry.module, chosen)
    shutil.rmtree(work)
    return content | {"minutes": budget.minutes, "environment": environment}


def content_of(
    asked: Question, entries: Sequence[Entry], judged: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Any], Choice]:
    """Choose, and say what was found of each backbone; the modules lie below ``folder``.

    Raises:
        ComponentError: When no backbone could be measured.
    """
    choice = choose(entries, asked, judged)
    budget = {"epochs": asked.epochs, "records": asked.records, "batch_size": asked.batch_size}
    content = {
        "chosen": choice.entry.name,
        "reason": choice.reason,
        "meets_goals": not choice.reasons[choice.entry.name],
        "task": asked.task,
        "classes": asked.classes,
        "image": asked.image,
        "label": asked.label,
        "stored_size": list(asked.stored),
        "input_size": list(asked.taken),
        "goals": [goal.text for goal in asked.goals],
        "objective": asked.objective,
        "confidence": "interval" if asked.proven else "point",
        "formats": asked.present,
        "left_out": dict(asked.missing),
        "training": budget | dict(judged) if judged else None,
        "metric": choice.metric,
        "threads": asked.threads,
        "seed": asked.seed,
        "backbones": [_row(entry, choice, folder) for entry in entries],
    }
    return content, choice


def _written(backbone: Any, asked: Question, folder: Path, work: Path) -> Entry:
    module = folder / "modules" / file_name(backbone)
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(module_text(backbone, asked), encoding="utf-8")
    place = work / module.stem
    place.mkdir(parents=True)
    return Entry(backbone, module, place)


def _affordable(entries: Sequence[Entry], asked: Question) -> list[Entry]:
    found = []
    for entry in entries:
        against = too_costly(entry, asked)
        if against:
            entry.untrained = None if entry.error else "; ".join(against)
            log.info("%s is not trained: %s", entry.name, "; ".join(against))
        else:
            found.append(entry)
    return found


def _row(entry: Entry, choice: Choice, folder: Path) -> dict[str, Any]:
    reasons = choice.reasons[entry.name]
    return {
        "name": entry.name,
        "builder": entry.backbone.builder,
        "alpha": entry.backbone.alpha,
        "module": entry.module.relative_to(folder).as_posix(),
        "chosen": entry is choice.entry,
        "passed": not reasons,
        "reasons": reasons,
        "pareto": entry.name in choice.front,
        "error": entry.error,
        "parameters": entry.counted["parameters"]["count"] if entry.counted else None,
        "flops": entry.counted["flops"]["total"] if entry.counted else None,
        "not_counted": entry.counted["flops"]["not_counted"] if entry.counted else {},
        "fastest": entry.fastest,
        "runtimes": {kind: dict(row) for kind, row in entry.speed.items()},
        "train_seconds": entry.train_seconds,
        "metrics": entry.quality.get("metrics") or {},
        "delta": entry.quality.get("delta") or {},
    }
