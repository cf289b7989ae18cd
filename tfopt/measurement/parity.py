"""How closely a child model follows its parent, on the same inputs."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError
from tfopt.formatting import distance
from tfopt.runtimes import Arrays, Runtime


@dataclass
class Parity:
    """The differences of one output over all records compared.

    Attributes:
        max_abs_error: Largest absolute difference.
        mean_abs_error: Mean absolute difference.
        output_range: Largest minus smallest value of the parent, at least 1e-12; where it does not vary, its size.
        agreement: Fraction of records whose largest class is the same, or whose values are where these are no floats;
            None where there are no classes.
        records: How many were compared.
        constant: Whether the child gives every record the same answer although the parent does not.
        correlation: Pearson's, over all values; it sees a wrong answer where most values are near zero and their mean
            error says little. None for what is no float or does not vary.
    """

    max_abs_error: float
    mean_abs_error: float
    output_range: float
    agreement: float | None
    records: int
    constant: bool = False
    correlation: float | None = None

    @property
    def relative_error(self) -> float:
        """The largest difference in units of the parent's output range."""
        return self.max_abs_error / self.output_range

    def facts(self) -> dict[str, Any]:
        """Everything, for a model card."""
        return {**asdict(self), "relative_error": self.relative_error}


def in_words(outputs: Mapping[str, Mapping[str, Any]]) -> str:
    """Say in a line what a model card holds of each output; of several that of the largest difference for its range.

    >>> in_words({"digit": Parity(0.1361, 0.001, 1.0, 0.75, 200).facts()})
    'agrees on 150 of 200 records, largest difference 0.136'
    """
    name, worst = max(outputs.items(), key=lambda output: float(output[1]["relative_error"]))
    agreement, records = worst["agreement"], worst["records"]
    said = f"{records} records" if agreement is None else f"agrees on {round(agreement * records)} of {records} records"
    where = f" in {name}" if len(outputs) > 1 else ""
    return f"{said}, largest difference {distance('error', worst['max_abs_error'])}{where}"


def compare(parent: Runtime, child: Runtime, batches: Iterable[Arrays]) -> dict[str, Parity]:
    """Run both on the same batches and return the parity of each output by its name.

    Raises:
        ComponentError: When the signatures differ (see `check_same_signature`), there is nothing to compare, the parent
            gives a NaN, or the child gives a NaN or infinity where the parent gives a number.
    """
    check_same_signature(parent, child)
    pairs: dict[str, list[tuple[NDArray[Any], NDArray[Any]]]] = {name: [] for name in parent.outputs}
    for batch in batches:
        expected, received = parent.run(batch), child.run(batch)
        for name, found in pairs.items():
            found.append((expected[name], received[name]))
    if not all(pairs.values()):
        raise ComponentError("no inputs to compare on", "at least one batch", "give examples with at least one record")
    return {name: _parity(name, found) for name, found in pairs.items()}


def degradation(found: Iterable[Parity]) -> float:
    """The worst of all outputs: the share of records whose class changes or, without classes, 1 - the correlation.

    Accuracy cannot fall by more than the share of records whose class changes.
    """
    return max((_lost(parity) for parity in found), default=0.0)


def check_same_signature(parent: Runtime, child: Runtime) -> None:
    """Raise ComponentError unless names, dtypes and shapes agree (a batch size may become fixed or free)."""
    for side in ("inputs", "outputs"):
        before, after = getattr(parent, side), getattr(child, side)
        same = set(before) == set(after) and all(
            before[name].dtype == after[name].dtype and _agree(before[name], after[name]) for name in before
        )
        if not same:
            raise ComponentError(
                f"{side} became {_words(after)}",
                f"the parent's {_words(before)}",
                "report this: a step may not change a signature",
            )


def _lost(parity: Parity) -> float:
    kept = parity.correlation if parity.agreement is None else parity.agreement
    return float(parity.max_abs_error > 0) if kept is None else max(0.0, 1 - kept)


def _agree(before: TensorSpec, after: TensorSpec) -> bool:
    if not (before.ranked and after.ranked):
        return True
    sizes = before.shape[1:], after.shape[1:]
    return len(sizes[0]) == len(sizes[1]) and all(a == b or None in (a, b) for a, b in zip(*sizes, strict=True))


def _words(specs: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {spec}" for name, spec in specs.items())


def _parity(name: str, pairs: list[tuple[NDArray[Any], NDArray[Any]]]) -> Parity:
    for parent, child in pairs:
        if parent.shape != child.shape:
            raise ComponentError(
                f"output {name!r}: shape {child.shape}",
                f"{parent.shape}, as the parent gives",
                "report this: a step may not change what a model computes",
            )
    parent, child = (np.concatenate([np.atleast_1d(pair[side]) for pair in pairs]) for side in (0, 1))
    if parent.dtype.kind not in "fV":  # V: bfloat16, which numpy knows by size only
        return _exact(parent, child)
    parent, child = parent.astype(np.float64), child.astype(np.float64)
    _check_finite(name, parent, child)
    error = np.abs(np.subtract(parent, child, where=parent != child, out=np.zeros_like(parent)))  # inf equals inf
    finite = parent[np.isfinite(parent)]
    spread = max(float(np.ptp(finite) or np.abs(finite[0])) if finite.size else 0.0, 1e-12)
    classes = parent.ndim == 2 and parent.shape[1] > 1
    agreement = float((parent.argmax(1) == child.argmax(1)).mean()) if classes else None
    return Parity(
        max_abs_error=float(error.max(initial=0)),
        mean_abs_error=float(error.mean()) if error.size else 0.0,
        output_range=spread,
        agreement=agreement,
        records=len(parent),
        constant=_is_constant(child) and not _is_constant(parent),
        correlation=_correlation(parent, child),
    )


def _correlation(parent: NDArray[Any], child: NDArray[Any]) -> float | None:
    if not np.isfinite(parent).all() or np.ptp(parent) == 0 or np.ptp(child) == 0:
        return None
    return float(np.corrcoef(parent.ravel(), child.ravel())[0, 1])


def _exact(parent: NDArray[Any], child: NDArray[Any]) -> Parity:
    """Integers, booleans and text are right or wrong."""
    if parent.dtype.kind in "OSU":
        parent, child = parent == parent, parent == child
    different = np.abs(parent.astype(np.float64) - child.astype(np.float64))
    spread = max(float(np.ptp(parent.astype(np.float64))), 1e-12) if parent.size else 1e-12
    right = (different == 0).reshape(len(parent), -1).all(1)
    return Parity(
        float(different.max(initial=0)),
        float(different.mean()),
        spread,
        float(right.mean()),
        len(parent),
        _is_constant(child) and not _is_constant(parent),
    )


def _check_finite(name: str, parent: NDArray[Any], child: NDArray[Any]) -> None:
    if np.isnan(parent).any():
        raise ComponentError(
            f"output {name!r}: the parent gives NaN in {int(np.isnan(parent).sum())} values",
            "numbers",
            "check the parent's weights for NaN and the inputs for values out of range",
        )
    lost = ~np.isfinite(child) & np.isfinite(parent)
    if lost.any():
        raise ComponentError(
            f"output {name!r}: NaN or infinity in {int(lost.sum())} values",
            "finite values, as the parent gives",
            "check the weights for NaN and the inputs for values out of range",
        )


def _is_constant(values: NDArray[Any]) -> bool:
    return len(values) > 1 and bool((values == values[:1]).all())
