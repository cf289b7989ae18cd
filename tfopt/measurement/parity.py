"""Compare the outputs of a child model with its parent's on the same inputs."""

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import runtimes
from tfopt.artifacts import Examples, Model
from tfopt.artifacts.model_card import ParityFacts, Verification
from tfopt.artifacts.tensor_spec import TensorSpec, describe_specs, dtype_name, same_shape
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import compared_records, draw_inputs, split_batches
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.formatting import distance
from tfopt.measurement.comparison_budget import ComparisonBudget
from tfopt.runtimes import Arrays, Runtime
from tfopt.runtimes.preprocessed import with_inputs_of

RECORDS, BATCH = 512, 64  # compared by `measure_parity`, fewer if they are large, and records per batch
MAX_ROUNDING = 0.05  # of the sum of a row of probabilities, which is 1
MIN_RANGE = 0.01  # fraction of the largest value: the range of a nearly constant output would make any error large

_float_32_lock = threading.Lock()
_float_32_blocks: list[bool] = []  # for each open block, the setting before it: `evaluate` has several threads


@dataclass
class Parity:
    """Differences of one output over all compared records."""

    max_abs_error: float  # largest absolute difference
    mean_abs_error: float  # mean absolute difference
    output_range: float  # range of the parent's values, at least 1e-12; the absolute value if they are constant
    # fraction of records with the same arg-max class; for outputs that are not floats, fraction of records with equal
    # values; None if there are no classes, or if several labels of a record may apply, as in masks of pixels
    agreement: float | None
    records: int  # number of compared records
    constant: bool = False  # True if the child's output is the same for all records and the parent's is not
    # Pearson correlation over all values. It detects wrong outputs if most values are near zero and the mean error is
    # therefore small. None for constant values and values that are not floats.
    correlation: float | None = None
    # Root of the mean square error, divided by the standard deviation of the parent's values. None where the
    # correlation of the parent's values is not defined.
    noise: float | None = None
    # Largest absolute value of the parent's output; 0 if its values are not floats. Not in model cards.
    largest: float = 0.0

    @property
    def relative_error(self) -> float:
        """Return the largest difference divided by the parent's output range."""
        return self.max_abs_error / self.output_range

    @property
    def rewrite_error(self) -> float:
        """Return the error of a rewritten graph: relative to the range, or to `MIN_RANGE` of the largest value.

        >>> parity = Parity(0.001, 0.001, output_range=0.002, agreement=None, records=8, largest=5.0)
        >>> round(parity.relative_error, 6), round(parity.rewrite_error, 6)
        (0.5, 0.02)
        """
        return self.max_abs_error / max(self.output_range, MIN_RANGE * self.largest)

    def facts(self) -> ParityFacts:
        """Return the values for a model card as a dictionary."""
        values = {name: value for name, value in asdict(self).items() if name != "largest"}
        return {**values, "relative_error": self.relative_error}


def describe_parity(outputs: Mapping[str, Mapping[str, Any]]) -> str:
    """Summarize the parity in a model card in one line, by the output with the largest relative error.

    >>> describe_parity({"digit": Parity(0.1361, 0.001, 1.0, 0.75, 200).facts()})
    'agrees on 150 of 200 records, largest difference 0.136 (13.6% of the range)'
    """
    name, worst = max(outputs.items(), key=lambda output: float(output[1]["relative_error"]))
    agreement, records = worst["agreement"], worst["records"]
    text = f"{records} records" if agreement is None else f"agrees on {round(agreement * records)} of {records} records"
    where = f" in {name}" if len(outputs) > 1 else ""
    error = f"{distance('error', worst['max_abs_error'])} ({_percent(float(worst['relative_error']))} of the range)"
    return f"{text}, largest difference {error}{where}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%" if share < 0.1 else f"{100 * share:.1f}%"


@contextlib.contextmanager
def without_tensor_float_32() -> Iterator[None]:
    """Let TensorFlow compute products in float32 while the block runs, on every device.

    By default, GPUs from Ampere on round the inputs of float32 products to 10 bits of mantissa (TensorFloat-32). This
    changes outputs by up to 1e-4 of their range, and a comparison would blame a model for it. Without effect in a
    process that has not imported TensorFlow, as one that compares ONNX models.
    """
    tf = sys.modules.get("tensorflow")
    if tf is None:
        yield
        return
    with _float_32_lock:
        _float_32_blocks.append(tf.config.experimental.tensor_float_32_execution_enabled())
        tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        with _float_32_lock:
            tf.config.experimental.enable_tensor_float_32_execution(_float_32_blocks.pop())


def measure_parity(parent: runtimes.Runtime, child: Model, examples: Examples | None, *, fix: str) -> Verification:
    """Load a child model, compare it with its parent, and return the differences for the model card.

    Args:
        parent: The loaded parent.
        child: The model that the step wrote.
        examples: Real inputs, from a split that was not used for training if there is one; None for random inputs.
        fix: Third part of the error for a child with constant outputs.

    Raises:
        ComponentError: If the signature changed, the parent fails on the inputs, or an output of the child is constant
            and the parent's is not.
    """
    count = compared_records(parent.inputs, RECORDS, examples)
    inputs, source = draw_inputs(examples, parent.inputs, records=count)
    with runtimes.load(child) as loaded:
        budget = ComparisonBudget(parent.inputs)
        differences = compare(parent, loaded, split_batches(inputs, parent.inputs, 1, 8, BATCH), source, budget=budget)
    for name, parity in differences.items():
        if parity.constant:
            received = f"output {name!r}: the same values for every input"
            raise ComponentError(received, "values that vary as the parent's do", fix)
    described = f"{source}; {budget.limited}" if budget.limited else source
    return {"inputs": described, "outputs": {name: parity.facts() for name, parity in differences.items()}}


def _run_parent(parent: Runtime, batch: Arrays, source: str) -> Mapping[str, NDArray[Any]]:
    """Run the parent; a child is not blamed if it fails."""
    try:
        return parent.run(batch)
    except ComponentError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        node = next((line for line in lines if "{{node" in line), "")
        reason = lines[-1] if len(lines) > 1 and not node else first_line(error)
        raise ComponentError(
            f"the model fails on {source}: {reason} {node}".strip(),
            "a model that runs on this machine",
            "pass examples=PATH with real inputs; a model that calls Python code runs only where that code is defined, "
            "and a model made for another device on that device",
        ) from error


@without_tensor_float_32()
def compare(
    parent: Runtime,
    child: Runtime,
    batches: Iterable[Batch],
    source: str = "these inputs",
    *,
    budget: ComparisonBudget | None = None,
) -> dict[str, Parity]:
    """Run both models on the same batches and return the parity of each output by name.

    A child that takes features which its parent parses from records gets them parsed from the parent's batches. A
    budget ends the comparison when it is spent.

    Raises:
        ComponentError: If the signatures differ (see `check_same_signature`), there are no batches, the parent fails on
            these inputs, returns NaN or empty outputs only, or the child returns NaN or infinity where the parent does
            not.
    """
    child = with_inputs_of(parent, child)
    check_same_signature(parent, child)
    pairs: dict[str, list[tuple[NDArray[Any], NDArray[Any]]]] = {name: [] for name in parent.outputs}
    without_values: list[tuple[Batch, Arrays]] = []

    def add(batch: Arrays, expected: Arrays) -> None:
        received = child.run(batch)
        for name, arrays in pairs.items():
            arrays.append((expected[name], received[name]))

    for batch in budget.within(batches) if budget else batches:
        expected = _run_parent(parent, batch, source)
        if any(array.size for array in expected.values()):
            add(batch, expected)
        else:
            without_values.append((batch, expected))
    if without_values and not any(pairs.values()):
        raise _nothing_compared(without_values[0][0], source)
    for batch, expected in without_values:  # the child must return nothing either
        add(batch, expected)
    if not all(pairs.values()):
        raise ComponentError("no inputs to compare on", "at least one batch", "give examples with at least one record")
    return {name: _parity(name, arrays) for name, arrays in pairs.items()}


def _nothing_compared(batch: Arrays, source: str) -> ComponentError:
    shapes = ", ".join(f"{name}: {TensorSpec(dtype_name(array), array.shape)}" for name, array in batch.items())
    received = f"all outputs of the parent are empty for {source} ({shapes})"
    fix = "pass examples=PATH with real inputs, which have the sizes that the model needs"
    return ComponentError(received, "inputs for which it returns values, to compare models on", fix)


def degradation(parities: Iterable[Parity]) -> float:
    """Return the worst value over all outputs of 1 - agreement or, without classes, of 1 - correlation.

    Accuracy cannot fall by more than 1 - agreement, the fraction of records whose class changes.
    """
    return max((_disagreement(parity) for parity in parities), default=0.0)


def noise(parities: Iterable[Parity]) -> float:
    """Return the largest noise of all outputs, or the largest relative error of those without one."""
    return max((parity.relative_error if parity.noise is None else parity.noise for parity in parities), default=0.0)


def check_same_signature(parent: Runtime, child: Runtime) -> None:
    """Raise ComponentError unless names, dtypes and shapes are the same (a batch size may become fixed or dynamic)."""
    for side in ("inputs", "outputs"):
        before, after = getattr(parent, side), getattr(child, side)
        same = set(before) == set(after) and all(
            before[name].dtype == after[name].dtype and same_shape(before[name], after[name]) for name in before
        )
        if not same:
            received = f"{side} became {describe_specs(after)}"
            fix = "keep the parent's names, dtypes and shapes; in a component of tfopt, report this with the model"
            raise ComponentError(received, f"the parent's {describe_specs(before)}", fix)


def _disagreement(parity: Parity) -> float:
    similarity = parity.correlation if parity.agreement is None else parity.agreement
    return float(parity.max_abs_error > 0) if similarity is None else max(0.0, 1 - similarity)


def _parity(name: str, pairs: list[tuple[NDArray[Any], NDArray[Any]]]) -> Parity:
    for parent, child in pairs:
        if parent.shape != child.shape:
            received = f"output {name!r}: shape {child.shape}"
            expected = f"{parent.shape}, the shape of the parent's output"
            raise ComponentError(received, expected, "report this: a step may not change what a model computes")
    if len({parent.shape[1:] for parent, _ in pairs}) > 1:  # two axes of the batch, as in distances of all pairs
        pairs = [(parent.ravel(), child.ravel()) for parent, child in pairs]
    parent, child = (np.concatenate([np.atleast_1d(pair[side]) for pair in pairs]) for side in (0, 1))
    kind = parent.dtype.kind
    if kind == "c":
        parent, child = (np.stack([array.real, array.imag], -1) for array in (parent, child))
    elif kind in "OSU":
        parent, child = parent == parent, parent == child
    parent, child = parent.astype(np.float64), child.astype(np.float64)
    is_float = kind in "fcV"  # V: bfloat16, for which numpy has no kind
    if is_float:
        _check_finite(name, parent, child)
    error = np.abs(np.subtract(parent, child, where=parent != child, out=np.zeros_like(parent)))  # inf equals inf
    finite = parent[np.isfinite(parent)]
    spread = float(np.ptp(finite) or (is_float and np.abs(finite[0]))) if finite.size else 0.0
    agreement = None if is_float else float((error == 0).reshape(len(parent), -1).all(1).mean())
    if kind in "fV" and has_classes(parent):
        agreement = float((parent.argmax(1) == child.argmax(1)).mean())
    varies = is_float and 0 < parent.size == finite.size and np.ptp(parent) > 0
    return Parity(
        max_abs_error=float(error.max(initial=0)),
        mean_abs_error=float(error.mean()) if error.size else 0.0,
        output_range=max(spread, 1e-12),
        agreement=agreement,
        records=len(parent),
        constant=_is_constant(child) and not _is_constant(parent),
        correlation=float(np.corrcoef(parent.ravel(), child.ravel())[0, 1]) if varies and np.ptp(child) else None,
        noise=float(np.sqrt(np.mean(np.square(parent - child))) / parent.std()) if varies else None,
        largest=float(np.abs(parent).max(initial=0)) if kind in "fV" else 0.0,
    )


def has_classes(parent: NDArray[Any]) -> bool:
    """Return True for rows of logits, or of probabilities that add up to 1, at most 5 % off as by rounding.

    Of several probabilities that are independent of each other, as of labels or pixels, the largest one is no class.
    """
    if parent.ndim != 2 or parent.shape[1] < 2:
        return False
    are_probabilities = bool(((parent >= 0) & (parent <= 1)).all())
    return not are_probabilities or bool((np.abs(parent.sum(1) - 1) <= MAX_ROUNDING).all())


def _check_finite(name: str, parent: NDArray[Any], child: NDArray[Any]) -> None:
    if np.isnan(parent).any():
        received = f"output {name!r}: the parent returns NaN in {int(np.isnan(parent).sum())} values"
        fix = "check the parent's weights for NaN and the inputs for values out of range"
        raise ComponentError(received, "numbers", fix)
    broken = ~np.isfinite(child) & np.isfinite(parent)
    if broken.any():
        received = f"output {name!r}: NaN or infinity in {int(broken.sum())} values"
        expected = "finite values, as in the parent's output"
        raise ComponentError(received, expected, "check the weights for NaN and the inputs for values out of range")


def _is_constant(values: NDArray[Any]) -> bool:
    return len(values) > 1 and bool((values == values[:1]).all())
