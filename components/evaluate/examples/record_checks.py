"""Checks of the evaluated records: skipped, equal, of several or one label, or records of training or calibration."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from tfopt.artifacts import Model
from tfopt.components.evaluate.examples.records import SEEN, TRAINING_SPLIT
from tfopt.components.evaluate.metrics.accumulators import Part, RecordFacts
from tfopt.components.evaluate.parameters import Settings
from tfopt.conversion.calibration import record_digest
from tfopt.data.record_hashes import BATCH, MOST_FILES, RecordHashes, first_blocks, hash_records
from tfopt.data.tfrecords import read_blocks
from tfopt.declaration.step_order import applied_steps, find_declaration
from tfopt.errors import ComponentError
from tfopt.reports.evaluation_report import EvaluationReport
from tfopt.storage.remote_files import local_copy

TRAINING = ("training", "fine_tuning")  # purposes of components that keep the epoch that is best on SEEN
ALLOWED_SHARE = 0.1  # of the calibration records; data may contain the same record twice

RecordIds = frozenset[str]


def read_training(part: Part, label: str) -> RecordFacts:
    """Return the hashes of the records of a part of the training split."""
    checks, (file, number, of) = RecordFacts(), part
    blocks = read_blocks([local_copy(file)], BATCH)
    try:
        for index, block in enumerate(first_blocks(blocks)):
            if index % of == number:
                checks.training.add(hash_records(block, label))
        checks.is_whole = next(blocks, None) is None
    except ComponentError:  # a damaged file: trainings refuse it, metrics do not depend on it
        checks.is_whole = False
    return checks


def check_skipped(read: int, skipped: dict[str, int], settings: Settings) -> None:
    """Raise ComponentError if more records than allowed could not be used."""
    count = sum(skipped.values())
    if count <= settings.max_skipped * read:
        return
    sufficient = min(1.0, -(-count * 1000 // read) / 1000)
    raise ComponentError(
        f"{count} of {read} records of split {settings.split!r} skipped ({count / read:.1%}): {_reasons(skipped)}",
        f"at most {settings.max_skipped:.1%} (max_skipped={settings.max_skipped:g}), because the metrics say nothing "
        "about the others",
        f"repair or remove these records when preparing the examples, or pass max_skipped={sufficient:g} to evaluate "
        "without them",
    )


def add_notes(
    report: EvaluationReport, checks: RecordFacts, training: Sequence[str], learned: Sequence[RecordHashes | None]
) -> EvaluationReport:
    """Return the report with the number of different records, and notes on the records.

    ``training`` are all files of the training split, ``learned`` is what each model was trained on elsewhere.
    """
    evaluated, checks = checks.evaluated, replace(checks, is_whole=checks.is_whole and len(training) <= MOST_FILES)
    evaluated.compact()
    distinct = None if evaluated.level else len(evaluated.records)
    counts = replace(report.counts, distinct=distinct)
    return replace(report, counts=counts, notes=[*report.notes, *_notes(report, checks, learned)])


def models_tuned_on(models: Sequence[Model], names: Sequence[str], split: str) -> list[str]:
    """Return the names of the models whose best epoch was chosen on this split, according to their model cards."""
    if split != SEEN:
        return []
    return [
        name
        for name, model in zip(names, models, strict=True)
        if any((one := find_declaration(step)) and one.purpose in TRAINING for step in applied_steps(model))
    ]


def calibration_records(model: Model) -> RecordIds:
    """Return the identifiers of a model's calibration records from its model card; empty without calibration."""
    return frozenset(model.card.calibration.records or ()) if model.card.calibration else frozenset()


def find_overlap(records: Iterable[bytes], calibrated: Sequence[RecordIds]) -> dict[int, set[str]]:
    """Return the identifiers of the records that each model was calibrated on, by the model's index."""
    identifiers = {record_digest(record) for record in records}
    return {number: overlap for number, own in enumerate(calibrated) if (overlap := identifiers & own)}


def describe_overlap(model: Model, overlap: Collection[str], split: str) -> tuple[str | None, list[str]]:
    """Return an error if the model was calibrated on the evaluated split, or a note if its split shares the records.

    The ranges of such a model fit the records, so its metrics are optimistic.
    ``overlap`` are the evaluated records that it was calibrated on; a few may be shared by chance.
    """
    calibration, count = model.card.calibration, len(calibration_records(model))
    if not calibration or len(overlap) <= ALLOWED_SHARE * count:
        return None, []
    if calibration.split == split:
        error = f"calibrated on {len(overlap)} of the records of split {split!r}, the evaluated split "
        return f"{error}(expected other records: export it again with split=train)", []
    note = (
        f"{len(overlap)} of the {count} records of split {calibration.split!r} that "
        f"it was calibrated on are in split {split!r} too, which may make its metrics optimistic"
    )
    return None, [note]


def _notes(report: EvaluationReport, checks: RecordFacts, learned: Sequence[RecordHashes | None]) -> Iterator[str]:
    counts, evaluated = report.counts, checks.evaluated
    if counts.skipped:
        yield f"{counts.skipped} of {counts.read} records skipped: {_reasons(counts.skipped_because)}"
    count, distinct = int(evaluated.counts.sum()), len(evaluated.records)
    if distinct < count:
        yield (
            f"the {count} evaluated records are {distinct} different ones{_sample(evaluated)}: intervals and tests "
            "count every copy, so they claim more certainty than the data have"
        )
    rows, records = evaluated.counted_rows()
    if rows:
        yield (
            f"{rows} row{'s have' if rows > 1 else ' has'} different labels in different records ({records} of the "
            f"evaluated records{_sample(evaluated)}): no model can be right on all of them"
        )
    if report.split == TRAINING_SPLIT:
        yield f"the {counts.evaluated} evaluated records are split {TRAINING_SPLIT!r}, which models learn from"
    else:
        yield from _overlap(checks)
        yield from _learned_elsewhere(report, checks, learned)
    if report.task in ("classification", "binary") and len(checks.labels) == 1:
        number = int(*checks.labels)
        names = report.classes[number : number + 1]
        name = f" ({names[0]})" if names and names[0] != str(number) else ""
        yield (
            f"all {counts.evaluated} evaluated records have the label {number}{name}: the metrics say nothing "
            "about other classes"
        )


def _overlap(checks: RecordFacts) -> Iterator[str]:
    shared, compared = checks.evaluated.counted_in(checks.training)
    if shared:
        yield (
            f"{shared} of {compared} evaluated records{_sample(checks.evaluated, checks.training)} are in split "
            f"{TRAINING_SPLIT!r} too: a model that learned from them gets better metrics than on new records"
        )
    if not checks.is_whole:
        yield (
            f"only {int(checks.training.counts.sum()) << checks.training.level} records of split {TRAINING_SPLIT!r} "
            "were compared with the evaluated ones: not all of its files were read"
        )


def _learned_elsewhere(
    report: EvaluationReport, checks: RecordFacts, learned: Sequence[RecordHashes | None]
) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for row, own in zip(report.models, learned, strict=True):
        if not own:
            continue
        shared, compared = checks.evaluated.counted_features_in(own, ignored=checks.training)
        if shared:
            sample = _sample(checks.evaluated, checks.training, own)
            names.setdefault(f"{shared} of {compared} evaluated records{sample}", []).append(row.name)
    for counted, learners in names.items():
        who = "every model" if len(learners) == len(learned) else ", ".join(learners)
        yield (
            f"{counted} have the features of records that {who} learned from in other examples: metrics on them are "
            "better than on new records"
        )


def _sample(*prints: RecordHashes) -> str:
    level = max(each.level for each in prints)
    return f" in a sample of one of {1 << level}" if level else ""


def _reasons(skipped: dict[str, int]) -> str:
    return ", ".join(f"{count} x {reason}" for reason, count in sorted(skipped.items()))
