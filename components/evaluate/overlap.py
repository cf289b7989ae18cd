"""Whether a model is judged on records that it was calibrated on: its ranges fit these, and it would look too good."""

from collections.abc import Iterable, Mapping, Sequence

from tfopt.artifacts import Model
from tfopt.calibration import identify

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


def complaint(number: int, met: Mapping[int, set[str]], calibrated: Sequence[Known], split: str) -> str | None:
    """Why a model is not judged; None when it met none of the records it was calibrated on, or few by chance."""
    found = len(met.get(number, ()))
    if not found or found <= ALLOWED * len(calibrated[number]):
        return None
    return (
        f"calibrated on {found} of the records of split {split!r} that it would be judged on "
        "(expected other records: export it again with split=train)"
    )
