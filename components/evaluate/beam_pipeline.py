"""Beam pipeline of `evaluate`: parts of shards in, one `Totals` out, and a check that every record is counted once."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

import apache_beam as beam

from tfopt import runtimes
from tfopt.artifacts import Examples, Model, PythonModule, unique_names
from tfopt.components.evaluate.examples import records
from tfopt.components.evaluate.examples.calibration_overlap import calibration_records
from tfopt.components.evaluate.examples.record_checks import (
    TrainingParts,
    add_notes,
    check_skipped,
    name_conflicts,
    read_training,
    split_training,
    training_files,
)
from tfopt.components.evaluate.examples.splits import choose_split, split_files
from tfopt.components.evaluate.loaded_models import MODEL_POOL, LoadedModel
from tfopt.components.evaluate.metrics.accumulators import Part, Totals
from tfopt.components.evaluate.metrics.user_metrics import load_metrics
from tfopt.components.evaluate.parameters import Settings
from tfopt.components.evaluate.plan import make_plan
from tfopt.components.evaluate.score_shard import score_parts
from tfopt.components.evaluate.summary import check_counts, summarize
from tfopt.components.evaluate.worker_plan import Plan
from tfopt.data import beam_runner
from tfopt.data.beam_result import ResultFile
from tfopt.data.feature_schema import read_manifest, rounding_notes
from tfopt.data.learned_names import check_names
from tfopt.data.training_records import read_trained_on
from tfopt.errors import ComponentError
from tfopt.measurement.evidence import describe_evaluation
from tfopt.reports.evaluation_report import EvaluationReport
from tfopt.reports.examples_manifest import ExamplesManifest
from tfopt.storage.remote_files import local_copy

log = logging.getLogger(__name__)


def evaluate_models(
    baseline: Model,
    candidates: list[Model],
    examples: Examples,
    settings: Settings,
    target: str,
    module: PythonModule | None = None,
) -> EvaluationReport:
    """Evaluate all models and return the report; workers write intermediate files to the folder ``target``.

    Raises:
        ComponentError: See the component.
    """
    settings = replace(settings, split=choose_split(examples, settings.split))
    files = split_files(examples, settings.split)
    metrics = load_metrics(settings.metrics, module)
    models = [baseline, *candidates]
    local = [type(model).open(local_copy(model.uri), model.metadata) for model in models]
    local[0].signature = baseline.signature
    names = unique_names(local)
    manifest = read_manifest(examples.uri)
    check_names(local[0].card, manifest, settings.label, f"baseline {baseline.uri}")
    learned = [read_trained_on(model.card, settings.label) for model in local]
    loaded = runtimes.load(local[0])
    try:
        plan, position, predictions = make_plan(settings, local, loaded, files, metrics)
    except BaseException:
        loaded.close()
        raise
    inputs = loaded.inputs
    plan = replace(
        plan,
        models=tuple((model.uri, copy.digest) for model, copy in zip(models, local, strict=True)),
        calibrated=tuple(calibration_records(model) for model in local),
    )
    offered = LoadedModel(baseline.uri, plan, loaded)
    offered.stored[position] = predictions
    MODEL_POOL.offer(offered)
    parts = records.split_into_parts(files, beam_runner.worker_count())
    training = training_files(examples, settings.split)
    totals = _run_pipeline(plan, parts, training, ResultFile(f"{target}/.totals"))
    if totals.refusal:
        raise ComponentError(*totals.refusal[1])
    totals.failures |= name_conflicts(local, examples, settings.label)
    check_counts(parts, (manifest.splits or {}).get(settings.split), totals, names)
    check_skipped(totals.read, totals.skipped, settings)
    report = summarize(plan, totals, local, names, _class_names(manifest, settings.label))
    notes = [f"examples: {note}" for note in manifest.notes or ()]
    report = replace(report, notes=[*notes, *rounding_notes(manifest, plan.features, inputs)])
    log.info("%s", describe_evaluation(report))
    return add_notes(report, totals.checks, training, learned)


def _run_pipeline(plan: Plan, parts: list[Part], training: list[str], result: ResultFile) -> Totals:
    """Run the pipeline and return the totals, which the last step writes to the file.

    Args:
        plan: The plan.
        parts: Parts of the evaluated files.
        training: The files of the training split, whose records are compared with the evaluated ones.
        result: The file.
    """
    workers = beam_runner.worker_count()
    log.info("evaluating %d models on %d parts of the files", len(plan.models), len(parts))
    # A worker loads groups of models once for all of its parts.
    shares = [[part] for part in parts] if len(plan.groups) == 1 else [parts[n::workers] for n in range(workers)]
    compared = [TrainingParts((part,)) for part in split_training(training, workers)]
    try:
        with beam_runner.pipeline() as pipeline:
            (
                pipeline
                | "Parts" >> beam.Create([*shares, *compared])
                | "Score" >> beam.ParDo(ScorePart(plan))
                | "Merge" >> beam.CombinePerKey(MergeTotals(len(plan.models)))
                | "Write" >> beam.Map(_write, result)
            )
    finally:
        MODEL_POOL.clear()
    totals: Totals = result.take()
    log.info("%d records in %.1f s with all models loaded", totals.read, totals.ended - totals.began)
    return totals


def _class_names(manifest: ExamplesManifest, label: str) -> list[str]:
    """Return the class names of the label; empty if the manifest of the examples has none."""
    return (manifest.classes or []) if manifest.label == label else []


class ScorePart(beam.DoFn):  # type: ignore[misc]  # Beam has no types
    """Computes the totals of some parts of shards, all under the key 0."""

    def __init__(self, plan: Plan) -> None:
        """Store the plan; the workers load the models."""
        self.plan = plan

    def process(self, parts: list[Part] | TrainingParts) -> Iterator[tuple[int, Totals]]:
        """Yield the totals of the parts; of the training split, only the hashes of its records."""
        if isinstance(parts, TrainingParts):
            checks = read_training(parts.parts, self.plan.settings.label)
            yield 0, replace(Totals.empty(len(self.plan.models)), checks=checks)
        else:
            yield 0, score_parts(self.plan, parts)


class MergeTotals(beam.CombineFn):  # type: ignore[misc]  # Beam has no types
    """Merges totals."""

    def __init__(self, models: int) -> None:
        """Store the number of models."""
        self.models = models

    def create_accumulator(self) -> Totals:
        """Return empty totals."""
        return Totals.empty(self.models)

    def add_input(self, accumulator: Totals, part: Totals) -> Totals:
        """Merge the totals of one part."""
        accumulator.merge(part)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Totals]) -> Totals:
        """Merge the totals of several workers."""
        total = self.create_accumulator()
        for accumulator in accumulators:
            total.merge(accumulator)
        return total

    def extract_output(self, accumulator: Totals) -> Totals:
        """Return the totals."""
        return accumulator


def _write(keyed: tuple[int, Totals], result: ResultFile) -> None:
    result.write(keyed[1])
