"""What each backbone learns in a short training, judged beside the others on records that none of them learnt."""

import logging
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfopt.artifacts import Evaluation, Examples, KerasModel
from tfopt.artifacts.staging import link_tree
from tfopt.component import find
from tfopt.components.compare_backbones.budget import Budget
from tfopt.components.compare_backbones.entry import Entry, beside_each_other, in_a_line
from tfopt.components.compare_backbones.request import Question
from tfopt.data.feature_schema import MANIFEST
from tfopt.errors import ComponentError
from tfopt.execution.isolated import run_component
from tfopt.processes.subprocess_call import run_in_child

JUDGED = "eval"  # choosing on the split that is kept for judging would spoil it

log = logging.getLogger("tfopt")


def learn(entries: Sequence[Entry], asked: Question, examples: Examples, budget: Budget, place: Path) -> dict[str, Any]:
    """Train these entries, the fastest first, and fill in how well each predicts; return what was judged on.

    Raises:
        ComponentError: When none can learn the examples.
    """
    ordered = sorted(entries, key=lambda entry: entry.latency)
    doing = "drawing examples"
    fewer = Examples(run_in_child(draw, examples.uri, str(place), asked.records, asked.seed, doing=doing))
    for number, entry in enumerate(ordered, 1):
        log.info("[%d/%d, %s] %s: training, epochs=%d", number, len(ordered), budget, entry.name, asked.epochs)
        _train(entry, asked, fewer, budget)
    trained = [entry for entry in ordered if entry.trained]
    if ordered and not trained and not budget.spent:
        raise ComponentError(
            f"no backbone could be trained: {ordered[0].name}: {ordered[0].untrained}",
            "examples that one of them can learn",
            "mend what it says; tfopt train with a file of modules/ shows more",
        )
    return _judge(sorted(trained, key=_promise), asked, examples, place) if trained else {}


def draw(uri: str, place: str, most: int, seed: int) -> str:
    """Return where the examples are, or where as many as are wanted of their split ``train`` were copied to."""
    import tensorflow as tf

    from tfopt.data.tfrecords import read_records

    examples, folder = Examples(uri), Path(place, "examples")
    files = examples.split("train")
    total = sum(1 for _ in read_records(files))
    if total <= most:
        return uri
    kept = set(random.Random(seed).sample(range(total), most))
    (folder / "Split-train").mkdir(parents=True)
    with tf.io.TFRecordWriter(str(folder / "Split-train" / "data_tfrecord-00000-of-00001")) as writer:
        for index, record in enumerate(read_records(files)):
            if index in kept:
                writer.write(record)
    link_tree(examples.path / f"Split-{JUDGED}", folder / f"Split-{JUDGED}")
    if (examples.path / MANIFEST).is_file():
        shutil.copyfile(examples.path / MANIFEST, folder / MANIFEST)
    return str(folder)


def _train(entry: Entry, asked: Question, examples: Examples, budget: Budget) -> None:
    target, began = entry.place / "trained", time.monotonic()
    given = {
        "examples": examples.uri,
        "module": str(entry.module),
        "trained": str(target),
        "label": asked.label,
        "epochs": asked.epochs,
        "batch_size": asked.batch_size,
        "seed": asked.seed,
    }
    try:
        run_component("train", given, doing=f"training {entry.name}", limit_s=budget.left())
    except ComponentError as error:
        entry.untrained = in_a_line(error)
        log.info("%s is not trained: %s", entry.name, entry.untrained)
        return
    entry.trained, entry.train_seconds = KerasModel(target), time.monotonic() - began


def _promise(entry: Entry) -> float:
    """What sorts the one that learnt best first, by its own validation: the others are compared with it."""
    metrics = dict(entry.trained.card["metrics"]) if entry.trained else {}
    metrics.pop("val_loss", None)
    name, value = next(iter(metrics.items()), ("", 0.0))
    return -value if name == "val_accuracy" else value


def _judge(entries: Sequence[Entry], asked: Question, examples: Examples, place: Path) -> dict[str, Any]:
    judged: dict[str, Any] = {}

    def measure(some: Sequence[Entry]) -> Sequence[dict[str, Any]]:
        models = [entry.trained for entry in some]
        report = place / f"evaluation {len(some)}"
        given: dict[str, Any] = {"baseline": models[0], "candidates": models[1:] or models, "examples": examples}
        find("evaluate")(**given, evaluation=report, label=asked.label, split=JUDGED, task=asked.task, seed=asked.seed)
        content = Evaluation(report).read()
        judged.update({"split": JUDGED, "counts": content["counts"], "interval": content["interval"]})
        judged["best"] = some[0].name
        return list(content["models"][: len(models)])

    log.info("judging %s", ", ".join(entry.name for entry in entries))
    for name, row in beside_each_other(entries, measure).items():
        entry = next(entry for entry in entries if entry.name == name)
        if isinstance(row, str) or row["error"]:
            entry.untrained = f"could not be judged: {row if isinstance(row, str) else row['error']}"
        else:
            entry.quality = row
    return judged
