"""The Beam pipeline: parts of shards in, one `Totals` out, and a check that nothing was lost or doubled on the way."""

import logging
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from tfopt import runtimes
from tfopt.artifacts import Evaluation, Examples, Model, unique_names
from tfopt.artifacts.storage import fetched, is_remote, send
from tfopt.components.evaluate import records
from tfopt.components.evaluate.accumulators import Totals
from tfopt.components.evaluate.calibration_overlap import calibrated_on
from tfopt.components.evaluate.loaded_models import POOL
from tfopt.components.evaluate.plan import Plan, Question, make_plan
from tfopt.components.evaluate.score_shard import judge_part
from tfopt.components.evaluate.splits import judged_split, split_files
from tfopt.components.evaluate.summary import check_conserved, summarize
from tfopt.data import beam_runner as runner
from tfopt.data.feature_schema import manifest
from tfopt.errors import ComponentError


def evaluate_models(
    baseline: Model, candidates: list[Model], examples: Examples, question: Question, target: str
) -> dict[str, Any]:
    """Evaluate all models and return the content of ``evaluation.json``; workers use the folder ``target`` in between.

    Raises:
        ComponentError: See the component.
    """
    question = replace(question, split=judged_split(examples, question.split))
    files = split_files(examples, question.split)
    models = [baseline, *candidates]
    here = [type(model).open(fetched(model.uri), model.metadata) for model in models]
    names = unique_names(here)
    with runtimes.load(here[0]) as runtime:
        plan = make_plan(question, here, runtime, files)
    plan = replace(
        plan,
        models=tuple((given.uri, model.digest) for given, model in zip(models, here, strict=True)),
        calibrated=tuple(calibrated_on(model) for model in here),
    )
    with ThreadPoolExecutor(1) as background:
        counting = background.submit(count, examples, question.split, files)
        totals = run(plan, files, f"{target}/.totals")
        if totals.refusal:
            raise ComponentError(*totals.refusal[1])
        check_conserved(counting.result(), totals, names)
    return summarize(plan, totals, here, names, class_names(examples, question.label))


def save(content: dict[str, Any], evaluation: Evaluation) -> None:
    """Write ``evaluation.json``, here or at an address."""
    if not is_remote(evaluation.uri):
        evaluation.write(content)
        return
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        Evaluation(folder).write(content)
        send(Path(folder), evaluation.uri)


def run(plan: Plan, files: list[str], place: str) -> Totals:
    """Run the pipeline and return the totals, which the last step leaves at ``place``."""
    pieces = records.parts(files, runner.workers())
    log = logging.getLogger("tfopt")
    log.info("evaluating %d models on %d parts of %d files", len(plan.models), len(pieces), len(files))
    try:
        with runner.pipeline() as pipeline:
            (
                pipeline
                | "Parts" >> beam.Create(pieces)
                | "Judge" >> beam.ParDo(Judge(plan))
                | "Merge" >> beam.CombinePerKey(Merge(len(plan.models)))
                | "Write" >> beam.Map(_write, place)
            )
    finally:
        POOL.clear()
    with FileSystems.open(place) as stream:
        totals: Totals = pickle.loads(stream.read())  # written by our own workers
    FileSystems.delete([place])
    log.info("%d records in %.1f s with all models loaded", totals.read, totals.ended - totals.began)
    return totals


def count(examples: Examples, split: str, files: list[str]) -> int:
    """How many records there should be: what was written down when they were made, else counted by their framing."""
    written = manifest(examples.path).get("splits", {}).get(split)
    return written if written is not None else sum(records.count_records(fetched(file)) for file in files)


def class_names(examples: Examples, label: str) -> list[str]:
    """What the numbers of a label stand for, where it was written down when the examples were made."""
    known = manifest(examples.path)
    return list(known.get("classes", [])) if known.get("label") == label else []


class Judge(beam.DoFn):  # type: ignore[misc]  # Beam has no types
    """A part of a shard to its totals, under one key: all of them belong together."""

    def __init__(self, plan: Plan) -> None:
        """Keep the plan; the models are loaded where the work is done."""
        self.plan = plan

    def process(self, piece: tuple[str, int, int]) -> Iterator[tuple[int, Totals]]:
        """Yield the totals of one part."""
        yield 0, judge_part(self.plan, *piece)


class Merge(beam.CombineFn):  # type: ignore[misc]  # Beam has no types
    """Adds totals up."""

    def __init__(self, models: int) -> None:
        """Know how many models there are."""
        self.models = models

    def create_accumulator(self) -> Totals:
        """Nothing yet."""
        return Totals.empty(self.models)

    def add_input(self, accumulator: Totals, part: Totals) -> Totals:
        """Add one part."""
        accumulator.merge(part)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Totals]) -> Totals:
        """Add what several workers added."""
        total = self.create_accumulator()
        for accumulator in accumulators:
            total.merge(accumulator)
        return total

    def extract_output(self, accumulator: Totals) -> Totals:
        """The totals themselves."""
        return accumulator


def _write(keyed: tuple[int, Totals], place: str) -> None:
    with FileSystems.create(place) as stream:
        stream.write(pickle.dumps(keyed[1], pickle.HIGHEST_PROTOCOL))
