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
    if not any(calibrated):
        return {}
    identifiers = {record_digest(record) for record in records}
    return {number: overlap for number, own in enumerate(calibrated) if (overlap := identifiers & own)}


def overlap_error(model: Model, overlap: Collection[str], split: str) -> str | None:
    """Return an error if the model was calibrated on the evaluated split and the overlap is more than by chance.

    Args:
        model: The model, with its model card.
        overlap: Evaluated records that it was calibrated on.
        split: Evaluated split.
    """
    if not _is_more_than_chance(model, overlap) or _calibration_split(model) != split:
        return None
    return (
        f"calibrated on {len(overlap)} of the records of split {split!r}, the evaluated split "
        "(expected other records: export it again with split=train)"
    )


def overlap_notes(model: Model, overlap: Collection[str], split: str) -> list[str]:
    """Return a note if the calibration split and the evaluated split share records, which is no error of the model."""
    if not _is_more_than_chance(model, overlap) or _calibration_split(model) == split:
        return []
    return [
        f"{len(overlap)} of the {len(calibration_records(model))} records of split {_calibration_split(model)!r} that "
        f"it was calibrated on are in split {split!r} too, which may make its metrics optimistic"
    ]


def _is_more_than_chance(model: Model, overlap: Collection[str]) -> bool:
    return len(overlap) > ALLOWED_SHARE * len(calibration_records(model))


def _calibration_split(model: Model) -> str | None:
    return model.card.calibration.split if model.card.calibration else None
