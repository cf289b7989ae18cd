"""Beam pipeline of `evaluate`: parts of shards in, one `Totals` out, and a check that every record is counted once."""

import functools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

import apache_beam as beam

from tfopt import runtimes
from tfopt.artifacts import Examples, Model, PythonModule, unique_names
from tfopt.components.evaluate.examples import records
from tfopt.components.evaluate.examples.record_checks import add_notes, check_skipped, read_training
from tfopt.components.evaluate.loaded_models import MODEL_POOL, LoadedModel
from tfopt.components.evaluate.metrics.accumulators import Part, Totals
from tfopt.components.evaluate.metrics.user_metrics import load_metrics
from tfopt.components.evaluate.parameters import Settings
from tfopt.components.evaluate.plan import make_plan
from tfopt.components.evaluate.score_shard import score_parts
from tfopt.components.evaluate.summary import check_counts, summarize
from tfopt.components.evaluate.worker_plan import Plan
from tfopt.data import beam_runner
from tfopt.data.feature_schema import read_manifest, rounding_notes
from tfopt.data.learned_names import check_names, find_conflict
from tfopt.data.record_hashes import MOST_FILES, read_trained_on
from tfopt.errors import ComponentError
from tfopt.measurement.evidence import describe_evaluation
from tfopt.reports.evaluation_report import EvaluationReport
from tfopt.storage.remote_files import local_copy

log = logging.getLogger(__name__)


def evaluate_models(
    baseline: Model,
    candidates: list[Model],
    examples: Examples,
    settings: Settings,
    target: str,
    module: PythonModule | None = None,
    crashed: Mapping[int, str] | None = None,
) -> EvaluationReport:
    """Evaluate all models and return the report; workers write intermediate files to the folder ``target``.

    ``crashed`` are the numbers of models that are not run, because they end the process, with the reason.
    """
    settings = replace(settings, split=records.choose_split(examples, settings.split))
    files = records.split_files(examples, settings.split)
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
        plan, position, first = make_plan(settings, local, [model.uri for model in models], loaded, files, metrics)
        plan = replace(plan, crashed=crashed or {})
    except BaseException:
        loaded.close()
        raise
    inputs = loaded.inputs
    offered = LoadedModel(baseline.uri, plan, loaded)
    offered.stored[position] = first
    MODEL_POOL.offer(offered)
    parts = records.split_into_parts(files, beam_runner.worker_count())
    training = [] if settings.split == records.TRAINING_SPLIT else records.find_files(examples, records.TRAINING_SPLIT)
    totals = _run_pipeline(plan, parts, training, beam_runner.ResultFile(f"{target}/.totals"))
    if totals.refusal:
        raise ComponentError(*totals.refusal[1])
    for number, model in enumerate(local):
        if conflict := find_conflict(model.card, manifest, settings.label):
            totals.failures[number] = ("", 0), conflict
    classes = (manifest.classes or []) if manifest.label == settings.label else []
    check_counts(parts, (manifest.splits or {}).get(settings.split), totals, names)
    check_skipped(totals.read, totals.skipped, settings)
    report = summarize(plan, totals, local, names, classes)
    notes = [f"examples: {note}" for note in manifest.notes or ()]
    report = replace(report, notes=[*notes, *rounding_notes(manifest, plan.features, inputs)])
    log.info("%s", describe_evaluation(report))
    return add_notes(report, totals.checks, training, learned)


def _run_pipeline(plan: Plan, parts: list[Part], training: list[str], result: beam_runner.ResultFile) -> Totals:
    """Return the totals of the evaluated parts and of the files of the training split; workers write a result file."""
    workers = beam_runner.worker_count()
    log.info("evaluating %d models on %d parts of the files", len(plan.models), len(parts))
    # A worker loads groups of models once for all of its parts.
    shares = [[part] for part in parts] if len(plan.groups) == 1 else [parts[n::workers] for n in range(workers)]
    compared = records.split_into_parts(training[:MOST_FILES], workers)
    try:
        with beam_runner.pipeline() as pipeline:
            (
                pipeline
                | "Parts" >> beam.Create([*shares, *compared])
                | "Score" >> beam.Map(_score, plan)
                | "Merge" >> beam.CombineGlobally(functools.partial(_merge, len(plan.models))).without_defaults()
                | "Write" >> beam.Map(result.write)
            )
    finally:
        MODEL_POOL.clear()
    totals: Totals = result.take()
    log.info("%d records in %.1f s with all models loaded", totals.read, totals.ended - totals.began)
    return totals


def _score(parts: list[Part] | Part, plan: Plan) -> Totals:
    """Return the totals of some parts of shards; of one part of the training split, only the hashes of its records."""
    if isinstance(parts, list):
        return score_parts(plan, parts)
    return replace(Totals.empty(len(plan.models)), checks=read_training(parts, plan.settings.label))


def _merge(models: int, parts: Iterable[Totals]) -> Totals:
    totals = Totals.empty(models)
    for part in parts:
        totals.merge(part)
    return totals
