"""Train the backbones for a few epochs, and evaluate them on the split ``eval``."""

import logging
import math
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from tfopt.artifacts import Evaluation, Examples, KerasModel
from tfopt.component import find
from tfopt.components.compare_backbones.candidate import Budget, Candidate, measure_together, summarize_error
from tfopt.components.compare_backbones.parameters import Settings
from tfopt.data.feature_schema import MANIFEST
from tfopt.data.tfrecords import read_records, write_split
from tfopt.errors import ComponentError
from tfopt.execution.execute import run_component
from tfopt.metric_table import HIGHER_IS_BETTER
from tfopt.processes.subprocess_call import run_in_child
from tfopt.reports.comparison_report import FailedMeasurement, ShortTraining
from tfopt.reports.evaluation_report import ModelEvaluation
from tfopt.storage.staging import link_tree

EVALUATION_SPLIT = "eval"  # selecting on the split ``test`` would bias the later evaluation on it

log = logging.getLogger(__name__)


def train_and_evaluate(
    candidates: Sequence[Candidate], settings: Settings, examples: Examples, budget: Budget, folder: Path
) -> ShortTraining | None:
    """Train the candidates, the fastest first, and evaluate them; return None if none was evaluated.

    Raises:
        ComponentError: If none can be trained on the examples.
    """
    ordered = sorted(candidates, key=lambda candidate: candidate.latency)
    arguments = examples.uri, str(folder), settings.records, settings.seed
    subset = Examples(run_in_child(draw_examples, *arguments, doing="drawing examples"))
    for number, candidate in enumerate(ordered, 1):
        log.info("[%d/%d, %s] %s: training, epochs=%d", number, len(ordered), budget, candidate.name, settings.epochs)
        _train(candidate, settings, subset, budget)
    trained = [candidate for candidate in ordered if candidate.trained]
    if ordered and not trained and not budget.is_spent:
        received = f"no backbone could be trained: {ordered[0].name}: {ordered[0].untrained}"
        expected = "examples that at least one backbone can be trained on"
        raise ComponentError(received, expected, "correct the error; tfopt train with a file of modules/ shows more")
    return _evaluate(sorted(trained, key=_validation_loss), settings, examples, folder) if trained else None


def draw_examples(uri: str, folder: str, max_records: int, seed: int) -> str:
    """Return the address of examples with at most so many records in the split ``train``, drawn at random."""
    examples, target = Examples(uri), Path(folder, "examples")
    files = examples.split("train")
    total = sum(1 for _ in read_records(files))
    if total <= max_records:
        return uri
    drawn = set(random.Random(seed).sample(range(total), max_records))
    write_split(target, "train", (record for index, record in enumerate(read_records(files)) if index in drawn))
    link_tree(examples.path / f"Split-{EVALUATION_SPLIT}", target / f"Split-{EVALUATION_SPLIT}")
    if (examples.path / MANIFEST).is_file():
        shutil.copyfile(examples.path / MANIFEST, target / MANIFEST)
    return str(target)


def _train(candidate: Candidate, settings: Settings, examples: Examples, budget: Budget) -> None:
    target, start = candidate.folder / "trained", time.monotonic()
    passed = {name: getattr(settings, name) for name in ("label", "epochs", "batch_size", "seed")}
    arguments = {"examples": examples.uri, "module": str(candidate.module), "trained": str(target), **passed}
    try:
        run_component("train", arguments, doing=f"training {candidate.name}", limit_s=budget.remaining_seconds())
    except ComponentError as error:
        candidate.untrained = summarize_error(error)
        log.info("%s is not trained: %s", candidate.name, candidate.untrained)
        return
    candidate.trained, candidate.train_seconds = KerasModel(target), time.monotonic() - start


def _validation_loss(candidate: Candidate) -> float:
    """Return a validation metric of the training, such that lower is better."""
    metrics = dict(candidate.trained.card.facts["metrics"]) if candidate.trained else {}
    metrics.pop("val_loss", None)
    name, value = next(iter(metrics.items()), ("", 0.0))
    return -value if name.endswith(HIGHER_IS_BETTER) else value


def _evaluate(
    candidates: Sequence[Candidate], settings: Settings, examples: Examples, folder: Path
) -> ShortTraining | None:
    training: ShortTraining | None = None

    def measure(group: Sequence[Candidate]) -> Sequence[ModelEvaluation]:
        nonlocal training
        models = [candidate.trained for candidate in group]
        arguments: dict[str, object] = {"baseline": models[0], "candidates": models[1:] or models, "examples": examples}
        arguments |= {"label": settings.label, "split": EVALUATION_SPLIT, "task": settings.task, "seed": settings.seed}
        # Any of the backbones may be the best in validation, so all pairs of them are compared.
        arguments["tried"] = max(len(models), math.comb(len(models), 2))
        target = folder / f"evaluation {len(group)}"
        find("evaluate")(**arguments, evaluation=target)
        report = Evaluation(target).load()
        training = ShortTraining(
            epochs=settings.epochs,
            records=settings.records,
            batch_size=settings.batch_size,
            split=EVALUATION_SPLIT,
            counts=report.counts,
            interval=report.interval,
            best=group[0].name,
        )
        return report.models[: len(models)]

    log.info("evaluating %s", ", ".join(candidate.name for candidate in candidates))
    rows = measure_together(candidates, measure)
    for candidate in candidates:
        row = rows[candidate.name]
        if isinstance(row, FailedMeasurement) or row.error:
            candidate.untrained = f"could not be evaluated: {row.error}"
        else:
            candidate.evaluation = row
    return training
