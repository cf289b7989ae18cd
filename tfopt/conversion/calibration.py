"""Examples to calibrate on, and the stability of the ranges found on them."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec, fixed_batch
from tfopt.conversion.activation_ranges import Histogram
from tfopt.conversion.conversion_facts import CalibrationFacts
from tfopt.conversion.parameters import Calibration
from tfopt.data.batches import Batch, parse_records, sample_records
from tfopt.data.sample_inputs import COMPARED_VALUES, FEWEST_COMPARED
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject

Ranges = Mapping[str, tuple[float, float]]  # smallest and largest value of each activation


def sample_inputs(
    examples: Examples, specs: Mapping[str, TensorSpec], parameters: Calibration
) -> tuple[Batch, CalibrationFacts]:
    """Return the inputs to calibrate on, and their description for the model card.

    Raises:
        ComponentError: If the split has fewer than two examples or than the model's fixed batch, lacks an input of the
            model, or has NaN or infinity in one.
    """
    where, count = f"split {parameters.split!r}", parameters.calibration_count
    files = examples.split(parameters.split)
    least = max(2, fixed_batch(specs) or 0)
    records = sample_records(files, count=max(count, least), seed=parameters.seed)
    if len(records) < least:
        received = f"{where}: {len(records)} examples"
        expected = f"at least {least} to calibrate on, and 100 for good ranges"
        raise ComponentError(received, expected, "name a larger split, or prepare more examples")
    facts: CalibrationFacts = {
        "requested": count,
        "used": len(records),
        "split": parameters.split,
        "seed": parameters.seed,
        "digest": hashlib.sha256(b"".join(hashlib.sha256(record).digest() for record in records)).hexdigest(),
        "records": sorted(record_digest(record) for record in records),
    }
    if len(records) < count:
        facts["note"] = f"the split has only {len(records)} examples"
    batch = parse_records(records, specs, where=where, files=files)
    _check_finite(batch, where)
    return batch, facts


def _check_finite(batch: Batch, where: str) -> None:
    # Some quantizers make a model with arbitrary outputs from NaN and infinity instead of failing.
    for name, array in batch.items():
        rows = np.atleast_1d(array)
        if array.dtype.kind == "f" and not (finite := np.isfinite(rows)).all():
            count = int((~finite).reshape(len(rows), -1).any(axis=1).sum())
            received = f"{where}: {name!r} is NaN or infinite in {count} of {len(rows)} examples"
            fix = "fill in missing values when the examples are prepared, or name a split without such examples"
            raise ComponentError(received, "finite numbers to calibrate on", fix)


def record_digest(record: bytes) -> str:
    """Return the identifier of a record in model cards: 64 bits of its SHA-256."""
    return hashlib.sha256(record).hexdigest()[:16]


def split_halves(feed: list[Batch]) -> tuple[list[Batch], list[Batch]]:
    """Split calibration data into two disjoint parts, every other batch in each; of large inputs only the first ones.

    Ranges are measured on both only to report how much they vary. `compare_halves` does so without another pass.
    """
    values = sum(array.size for batch in feed[:1] for array in batch.values())
    most = 2 * max(FEWEST_COMPARED, COMPARED_VALUES // max(values, 1))
    return feed[:most:2], feed[1:most:2]


def compare_halves(histograms: Iterable[Histogram]) -> JsonObject:
    """Compare the ranges of two disjoint halves of the records, for the model card; see `compare_ranges`."""
    halves = {histogram.name: histogram.halves for histogram in histograms}
    measured = {name: ends for name, ends in halves.items() if np.isfinite(ends).all()}
    return compare_ranges(*({name: ends[half] for name, ends in measured.items()} for half in (0, 1)))


def compare_ranges(one: Ranges, other: Ranges) -> JsonObject:
    """Compare the ranges found on two disjoint halves of the data, for the model card.

    The difference of an activation is the sum of the differences of both ends, as a fraction of the union of both
    ranges. Differences of a tenth are common, since a largest value varies with the sample. Much larger ones call for
    more examples.

    >>> compare_ranges({"relu": (0.0, 8.0), "add": (-1.0, 1.0)}, {"relu": (0.0, 10.0), "add": (-1.0, 1.0)})
    {'activations': 2, 'median_difference': 0.1, 'largest_difference': 0.2, 'least_stable': 'relu'}
    """
    differences = {name: _difference(one[name], other[name]) for name in one if name in other}
    worst = max(differences, key=differences.__getitem__, default=None)
    return {
        "activations": len(differences),
        "median_difference": float(np.median(list(differences.values()) or [0.0])),
        "largest_difference": differences[worst] if worst else 0.0,
        "least_stable": worst,
    }


def _difference(one: tuple[float, float], other: tuple[float, float]) -> float:
    span = max(one[1], other[1]) - min(one[0], other[0])
    return float((abs(one[0] - other[0]) + abs(one[1] - other[1])) / span) if span > 0 else 0.0


def drop_calibrated(batch: Batch, calibrated: Batch | None) -> tuple[Batch, int]:
    """Drop records that a model was calibrated on, since parity on them is biased.

    Returns:
        The other records, or the unchanged batch if there are no others; and the number of calibrated records in it.
    """
    if calibrated is None:
        return batch, 0
    digests = set(_row_digests(calibrated))
    new = [index for index, digest in enumerate(_row_digests(batch)) if digest not in digests]
    dropped = max((len(array) for array in batch.values() if array.ndim), default=1) - len(new)
    return {name: array[new] if array.ndim else array for name, array in batch.items()} if new else batch, dropped


def _row_digests(batch: Batch) -> list[bytes]:
    columns = [array for _, array in sorted(batch.items()) if array.ndim]
    return [hashlib.sha256(b"".join(map(_bytes, row))).digest() for row in zip(*columns, strict=True)]


def _bytes(value: Any) -> bytes:
    array = np.asarray(value)
    return repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
