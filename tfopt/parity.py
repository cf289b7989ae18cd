"""How closely a child model follows its parent, on the same inputs."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.errors import ComponentError
from tfopt.runtimes import Arrays, Runtime


@dataclass
class Parity:
    """The differences of one output over all records compared.

    Attributes:
        max_abs_error: Largest absolute difference.
        mean_abs_error: Mean absolute difference.
        output_range: Largest minus smallest value of the parent, at least 1e-12.
        agreement: Fraction of records whose largest class is the same; None where there are no classes.
        records: How many were compared.
    """

    max_abs_error: float
    mean_abs_error: float
    output_range: float
    agreement: float | None
    records: int

    @property
    def relative_error(self) -> float:
        """The largest difference in units of the parent's output range."""
        return self.max_abs_error / self.output_range

    def facts(self) -> dict[str, Any]:
        """Everything, for a model card."""
        return {**asdict(self), "relative_error": self.relative_error}


def compare(parent: Runtime, child: Runtime, batches: Iterable[Arrays]) -> dict[str, Parity]:
    """Run both on the same batches and return the parity of each output by its name.

    Raises:
        ComponentError: When the signatures differ (see `check_same_signature`), or an output holds a NaN which the
            parent's does not.
    """
    check_same_signature(parent, child)
    pairs: dict[str, list[tuple[NDArray[Any], NDArray[Any]]]] = {name: [] for name in parent.outputs}
    for batch in batches:
        expected, received = parent.run(batch), child.run(batch)
        for name, found in pairs.items():
            found.append((expected[name], received[name]))
    return {name: _parity(name, found) for name, found in pairs.items()}


def check_same_signature(parent: Runtime, child: Runtime) -> None:
    """Raise ComponentError unless names, dtypes and shapes agree (a batch size may become fixed or free)."""
    for side in ("inputs", "outputs"):
        before, after = getattr(parent, side), getattr(child, side)
        same = set(before) == set(after) and all(
            before[name].dtype == after[name].dtype and _agree(before[name].shape[1:], after[name].shape[1:])
            for name in before
        )
        if not same:
            raise ComponentError(
                f"{side} became {_words(after)}",
                f"the parent's {_words(before)}",
                "report this: a step may not change a signature",
            )


def _agree(before: tuple[int | None, ...], after: tuple[int | None, ...]) -> bool:
    return len(before) == len(after) and all(a == b or None in (a, b) for a, b in zip(before, after, strict=True))


def _words(specs: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {spec}" for name, spec in specs.items())


def _parity(name: str, pairs: list[tuple[NDArray[Any], NDArray[Any]]]) -> Parity:
    parent = np.concatenate([pair[0] for pair in pairs]).astype(np.float64)
    child = np.concatenate([pair[1] for pair in pairs]).astype(np.float64)
    if np.isnan(child).any() and not np.isnan(parent).any():
        raise ComponentError(
            f"output {name!r}: NaN in {int(np.isnan(child).sum())} values",
            "finite values, as the parent gives",
            "check the weights for NaN and the inputs for values out of range",
        )
    error = np.abs(parent - child)
    classes = parent.ndim == 2 and parent.shape[1] > 1
    agreement = float((parent.argmax(1) == child.argmax(1)).mean()) if classes else None
    spread = max(float(parent.max() - parent.min()), 1e-12)
    return Parity(float(error.max()), float(error.mean()), spread, agreement, len(parent))
