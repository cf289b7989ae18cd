"""Columns of the inputs of records, and their comparisons: missing, unknown and repeated values, distributions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import RecordSpec, TensorSpec
from tfopt.components.check_drift.intervals import Floats
from tfopt.data.batches import Batch, parse_features

MOST_COLUMNS = 64  # values of an input that are compared one by one; of larger inputs, a mean and a spread
MOST_CATEGORIES = 0.1  # of the records: integers with more values are no categories
EMPTY = {b"", ""}
SUMMARIES: Mapping[str, Callable[..., Any]] = {"mean": np.nanmean, "spread": np.nanstd}

Rows = Sequence[NDArray[Any]]  # the values of an input, flat, for each record


@dataclass(frozen=True)
class Comparison:
    """Values of both samples, one for each record, that are compared."""

    subject: str
    kind: str
    reference: Floats
    served: Floats
    note: str = ""


def input_rows(batches: Sequence[Batch], specs: Mapping[str, TensorSpec]) -> dict[str, Rows]:
    """Return the values of each input by record; of serialized records, those of the features that are parsed."""
    rows: dict[str, list[NDArray[Any]]] = {}
    for batch in batches:
        for name, array in batch.items():
            spec = specs[name]
            if isinstance(spec, RecordSpec):
                dense = {key: one for key, one in spec.features.items() if one.kind == "dense"}
                parsed: Mapping[str, NDArray[Any]] = parse_features(array.reshape(-1), dense)
            else:
                parsed = {name: array} if spec.shape else {}
            for key, values in parsed.items():
                rows.setdefault(key, []).extend(np.asarray(row).ravel() for row in values)
    return dict(rows)


def compare_columns(name: str, reference: Rows, served: Rows) -> Iterator[Comparison]:
    """Yield the comparisons of an input."""
    kind = reference[0].dtype.kind
    if kind in "OSU":
        yield _means(name, "missing", reference, served, lambda row: [value in EMPTY for value in row])
        yield _unknown(name, reference, served)
        return
    if kind in "iub" and len({value for row in reference for value in row}) <= MOST_CATEGORIES * len(reference):
        yield _unknown(name, reference, served)
    if kind == "f":
        yield _means(name, "missing", reference, served, np.isnan)
    sizes = {len(row) for rows in (reference, served) for row in rows}
    if len(sizes) == 1 and max(sizes) <= MOST_COLUMNS:
        before, now = (np.stack(rows).astype(np.float64) for rows in (reference, served))
        for index in range(before.shape[1]):
            column = name if before.shape[1] == 1 else f"{name}[{index}]"
            yield from _numbers(column, list(before[:, index, None]), list(now[:, index, None]))
        return
    yield from _numbers(name, reference, served)


def _means(
    name: str, kind: str, reference: Rows, served: Rows, test: Callable[[NDArray[Any]], Any], note: str = ""
) -> Comparison:
    """Return the comparison of the shares of values for which a test is true."""
    before, now = (np.array([np.mean(test(row)) if row.size else 0.0 for row in rows]) for rows in (reference, served))
    return Comparison(name, kind, before, now, note)


def _unknown(name: str, reference: Rows, served: Rows) -> Comparison:
    """Compare the shares of values that a random half of the reference does not have.

    The other half of the reference shows how many are new in any sample, as free texts and identifiers are.
    """
    order = np.random.default_rng(0).permutation(len(reference))
    vocabulary = {value for index in order[::2] for value in reference[index]}
    others = [reference[index] for index in order[1::2]]
    new = {value for row in served for value in row} - vocabulary - {value for row in others for value in row}
    shown = ", ".join(sorted(_text(value) for value in new - EMPTY)[:5])
    vocabulary |= EMPTY  # they are missing values
    note = f"such as {shown}" if shown else ""
    return _means(name, "unknown", others, served, lambda row: [value not in vocabulary for value in row], note)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _numbers(name: str, reference: Rows, served: Rows) -> Iterator[Comparison]:
    before, now = (np.concatenate([row[np.isfinite(row)] for row in rows]) for rows in (reference, served))
    if not len(before) or not len(now):
        return
    values, counts = np.unique(now, return_counts=True)
    frequent = {float(values[counts.argmax()]), float(values[0]), float(values[-1])}
    for value in sorted(frequent):
        yield _repeated(name, value, before, reference, served)
    if all(len(row) == 1 for row in (reference[0], served[0])):
        yield Comparison(name, "distribution", before, now)
        return
    for summary, compute in SUMMARIES.items():
        each = [np.array([compute(row) for row in rows if np.isfinite(row).any()]) for rows in (reference, served)]
        yield Comparison(f"{summary} of {name}", "distribution", each[0], each[1])


def _repeated(name: str, value: float, before: NDArray[Any], reference: Rows, served: Rows) -> Comparison:
    """Compare the share of a value, such as the end of a sensor's range, with that of the reference.

    The ends of the reference count as well: where values are scaled, each value becomes another one.
    """
    candidates = [value, float(before.min()), float(before.max())]
    usual = max(candidates, key=lambda one: float(np.mean(before == one)))
    shares = [np.array([np.mean(row == one) for row in rows]) for rows, one in ((reference, usual), (served, value))]
    return Comparison(name, "repeated", shares[0], shares[1], note=f"value {value:g}")
