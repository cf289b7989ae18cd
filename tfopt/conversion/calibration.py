"""What a model is calibrated on: examples drawn from a split, and how far its ranges depend on which ones."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec, fixed_batch
from tfopt.conversion.convert import Conversion
from tfopt.data.batches import Batch, parse_records, sample_records
from tfopt.data.feature_schema import stored_features
from tfopt.errors import ComponentError

Ranges = Mapping[str, tuple[float, float]]  # the least and the largest value of each activation


def sample(examples: Examples, specs: Mapping[str, TensorSpec], asked: Conversion) -> tuple[Batch, dict[str, Any]]:
    """Return the inputs to calibrate on, and what the model card says of them.

    Raises:
        ComponentError: When the split has fewer than two examples, or than the batch that the model fixes, not the
            model's inputs, or NaN or infinity in them.
    """
    where, count = f"split {asked.split!r}", asked.calibration_count
    files = examples.split(asked.split)
    least = max(2, fixed_batch(specs) or 0)
    records = sample_records(files, count=max(count, least), seed=asked.seed)
    if len(records) < least:
        raise ComponentError(
            f"{where}: {len(records)} examples",
            f"at least {least} to calibrate on, and 100 to do it well",
            "name a larger split, or prepare more examples",
        )
    facts = {
        "requested": count,
        "used": len(records),
        "split": asked.split,
        "seed": asked.seed,
        "digest": hashlib.sha256(b"".join(hashlib.sha256(record).digest() for record in records)).hexdigest(),
        "records": sorted(identify(record) for record in records),
    }
    if len(records) < count:
        facts["note"] = f"the split has only {len(records)} examples"
    batch = parse_records(records, specs, where=where, stored=stored_features(files))
    _check_finite(batch, where)
    return batch, facts


def _check_finite(batch: Batch, where: str) -> None:
    """Refuse what no range can be found on; some quantizers make a model of it that answers anything."""
    for name, array in batch.items():
        rows = np.atleast_1d(array)
        if array.dtype.kind == "f" and not (sound := np.isfinite(rows)).all():
            count = int((~sound).reshape(len(rows), -1).any(axis=1).sum())
            raise ComponentError(
                f"{where}: {name!r} is NaN or infinite in {count} of {len(rows)} examples",
                "numbers to calibrate on",
                "fill them in when the examples are prepared, or name a split without such examples",
            )


def identify(record: bytes) -> str:
    """What identifies a record in a model card: so much of its SHA-256 that no two of a billion are likely the same."""
    return hashlib.sha256(record).hexdigest()[:16]


def halves(feed: list[Batch]) -> tuple[list[Batch], list[Batch]]:
    """Two disjoint parts of what is calibrated on, every other batch in each."""
    return feed[::2], feed[1::2]


def stability(one: Ranges, other: Ranges) -> dict[str, Any]:
    """Say how far the ranges found on two disjoint halves of the data lie apart, for the model card.

    The difference of an activation is that of both ends together, as a fraction of the range of the two halves.
    Differences of a tenth are common, since a largest value is a matter of luck; much more asks for more examples.

    >>> stability({"relu": (0.0, 8.0), "add": (-1.0, 1.0)}, {"relu": (0.0, 10.0), "add": (-1.0, 1.0)})
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


def unseen(given: Batch, calibrated: Batch | None) -> tuple[Batch, int]:
    """Return the records that were not calibrated on, and how many were; all of them, as given, without any others.

    A comparison on what the ranges were fitted to would flatter the result.
    """
    if calibrated is None:
        return given, 0
    known = set(_digests(calibrated))
    new = [index for index, digest in enumerate(_digests(given)) if digest not in known]
    seen = max((len(array) for array in given.values() if array.ndim), default=1) - len(new)
    return {name: array[new] if array.ndim else array for name, array in given.items()} if new else given, seen


def _difference(one: tuple[float, float], other: tuple[float, float]) -> float:
    span = max(one[1], other[1]) - min(one[0], other[0])
    return float((abs(one[0] - other[0]) + abs(one[1] - other[1])) / span) if span > 0 else 0.0


def _digests(batch: Batch) -> list[bytes]:
    columns = [array for _, array in sorted(batch.items()) if array.ndim]
    return [hashlib.sha256(b"".join(map(_bytes, row))).digest() for row in zip(*columns, strict=True)]


def _bytes(value: Any) -> bytes:
    array = np.asarray(value)
    return repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
