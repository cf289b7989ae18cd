"""Whether a model is judged on records that it was calibrated on: its ranges fit these, and it would look too good."""

from collections.abc import Collection, Iterable, Sequence

from tfopt.artifacts import Model
from tfopt.conversion.calibration import identify

ALLOWED = 0.1  # of the records calibrated on; data may hold the same record twice

Known = frozenset[str]


def calibrated_on(model: Model) -> Known:
    """What identifies each record that a model was calibrated on, by its card; empty for a model that was not."""
    return frozenset((model.card.get("calibration") or {}).get("records") or ())


def met(records: Iterable[bytes], calibrated: Sequence[Known]) -> dict[int, set[str]]:
    """Which of the records each model was calibrated on; nothing for those that were not."""
    if not any(calibrated):
        return {}
    here = {identify(record) for record in records}
    return {number: found for number, known in enumerate(calibrated) if (found := here & known)}


def complaint(model: Model, met: Collection[str], split: str) -> str | None:
    """Why a model is not judged; None unless it was calibrated on the split, and on more of its records than by chance.

    Args:
        model: With its card.
        met: Which of the records judged on it was calibrated on.
        split: That it is judged on.
    """
    if not _by_more_than_chance(model, met) or _split(model) != split:
        return None
    return (
        f"calibrated on {len(met)} of the records of split {split!r} that it would be judged on "
        "(expected other records: export it again with split=train)"
    )


def notes(model: Model, met: Collection[str], split: str) -> list[str]:
    """What to know of a model that is judged: records that two splits share are the data's doing, not its own."""
    if not _by_more_than_chance(model, met) or _split(model) == split:
        return []
    return [
        f"{len(met)} of the {len(calibrated_on(model))} records of split {_split(model)!r} that it was calibrated on "
        f"are in split {split!r} too, which may flatter it"
    ]


def _by_more_than_chance(model: Model, met: Collection[str]) -> bool:
    return len(met) > ALLOWED * len(calibrated_on(model))


def _split(model: Model) -> str | None:
    return (model.card.get("calibration") or {}).get("split")
