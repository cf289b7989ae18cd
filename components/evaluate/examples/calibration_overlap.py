"""Records that a model was both calibrated and evaluated on: its ranges fit them, so its metrics are optimistic."""

from collections.abc import Collection, Iterable, Sequence

from tfopt.artifacts import Model
from tfopt.conversion.calibration import record_digest

ALLOWED_SHARE = 0.1  # of the calibration records; data may contain the same record twice

RecordIds = frozenset[str]


def calibration_records(model: Model) -> RecordIds:
    """Return the identifiers of a model's calibration records from its model card; empty without calibration."""
    return frozenset(model.card.calibration.records or ()) if model.card.calibration else frozenset()


def find_overlap(records: Iterable[bytes], calibrated: Sequence[RecordIds]) -> dict[int, set[str]]:
    """Return the identifiers of the records that each model was calibrated on, by the model's index."""
    identifiers = {record_digest(record) for record in records}
    return {number: overlap for number, own in enumerate(calibrated) if (overlap := identifiers & own)}


def describe_overlap(model: Model, overlap: Collection[str], split: str) -> tuple[str | None, list[str]]:
    """Return an error if the model was calibrated on the evaluated split, or a note if its split shares the records.

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
