"""Round the weights of layers to a grid so that their outputs change little, by second moments of their inputs.

Rows of weights, one for each input, are rounded one after the other. The error of a row is compensated by the rows that
follow, by the Cholesky factor of the inverse moments (GPTQ: Frantar et al., 2023, https://arxiv.org/abs/2210.17323).
Inputs are those of the model as rounded so far, and outputs to approximate are those of the float model, so that a
layer also compensates for earlier ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from tfopt.value_types import JsonObject

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
# Yields for each record some inputs of layers ``[rows, inputs]``, each of the rounded and of the float model. Arguments
# are the names of the layers, and the weights that are rounded so far.
Reader = Callable[[Sequence[str], Mapping[str, Floats]], Iterable[Mapping[str, tuple[Floats, Floats]]]]

DAMPING = 0.03  # of the mean of the inputs' squares, added to each: few records determine few directions
PULL = 0.1  # the same, towards the float weights where the outputs of the float model are approximated
CLIPS = (1.0, 0.85, 0.72, 0.6, 0.45, 0.3, 0.15)  # steps, as multiples of those that the largest weight needs
BLOCK = 64  # rows whose errors are applied to the following rows at once
WAITING = 1024  # rows of inputs that are multiplied at once
JUDGED = 3  # one record of so many is not used to round, but to choose between the results
FEWEST = 12  # records: on four of them the least error is chosen
STAGES = 8  # passes over the records; in each of them a part of the layers is rounded
MOST_INPUTS = 4608  # of a layer, as of 3 x 3 x 512: the time grows with their third power
ROWS = 256  # inputs of a layer in each record, because neighbors are similar


@dataclass(frozen=True)
class Grid:
    """Integers from ``low`` to ``high``, and the steps for weights ``[inputs, outputs]``, which may be negative.

    With ``is_found_again``, an integer of each output is an end of the grid, so that a quantizer finds the same steps.
    """

    low: int
    high: int
    steps: Callable[[Floats], NDArray[Any]]
    is_found_again: bool = False


@dataclass(frozen=True)
class Rounded:
    """Integers and steps ``[inputs, outputs]``, and what is better than with plain rounding on other records."""

    integers: Doubles
    steps: Doubles
    changed: int  # outputs
    removed_noise: float  # relative to the outputs

    @property
    def weights(self) -> Floats:
        """Return the rounded weights."""
        return (self.integers * self.steps).astype(np.float32)


@dataclass
class Moments:
    """Sums over records: products of inputs, and of inputs and the outputs of the float model without bias."""

    inputs: Any = 0.0  # [inputs, inputs]
    outputs: Any = 0.0  # [inputs, outputs]
    _rows: list[tuple[Floats, Floats]] = field(default_factory=list)

    def add(self, rows: Floats, outputs: Floats) -> None:
        """Add rows of inputs ``[rows, inputs]`` and of outputs."""
        self._rows.append((rows, outputs))
        if sum(len(waiting) for waiting, _ in self._rows) >= WAITING:
            self.finish()

    def finish(self) -> None:
        """Add the rows that wait for others."""
        if self._rows:
            rows, outputs = (np.concatenate(parts) for parts in zip(*self._rows, strict=True))
            self.inputs = self.inputs + (rows.T @ rows).astype(np.float64)
            self.outputs = self.outputs + (rows.T @ outputs).astype(np.float64)
            self._rows = []

    def error(self, weights: Doubles) -> Doubles:
        """Return the squared error of each output, up to a constant that does not depend on the weights."""
        return np.asarray(np.einsum("io,io->o", weights, self.inputs @ weights - 2 * self.outputs))


def round_layers(
    matrices: Mapping[str, Floats], grid: Grid, records: int, read: Reader
) -> tuple[dict[str, Rounded], JsonObject]:
    """Return the rounded weights of layers, in the order of the model, and metadata for the model card.

    Layers stay away if rounding does not lower their error on the records that it did not see.
    """
    if records < FEWEST:
        return {}, {"stays": [f"{records} records, fewer than {FEWEST}"]}
    rounded: dict[str, Rounded] = {}
    stays = [
        f"{name}: more than {MOST_INPUTS} inputs" for name, matrix in matrices.items() if len(matrix) > MOST_INPUTS
    ]
    names = [name for name, matrix in matrices.items() if len(matrix) <= MOST_INPUTS]
    for part in np.array_split(np.arange(len(names)), max(1, min(STAGES, len(names)))):
        stage = [names[index] for index in part]
        moments = {name: (Moments(), Moments()) for name in stage}
        weights = {name: result.weights for name, result in rounded.items()}
        for number, values in enumerate(read(stage, weights)):
            for name, (rows, exact) in values.items():
                moments[name][number % JUDGED == 0].add(rows, exact @ matrices[name])
        for name in stage:
            fitted, judged = moments.pop(name)
            fitted.finish()
            judged.finish()
            if not (np.isfinite(fitted.outputs).all() and np.isfinite(judged.outputs).all()):
                stays.append(f"{name}: values that are not finite")
                continue
            result = round_weights(matrices[name], fitted, judged, grid)
            if result.changed:
                rounded[name] = result
            else:
                stays.append(f"{name}: no less error on other records")
    return rounded, {"removed_noise": {name: one.removed_noise for name, one in rounded.items()}, "stays": stays}


def round_weights(weights: Floats, fitted: Moments, judged: Moments, grid: Grid) -> Rounded:
    """Return weights on a grid; of the clipped grids and plain rounding, that with the least error for each output.

    Zeros stay zeros, as those of a pruned model.
    """
    exact = weights.astype(np.float64)
    steps = np.where(exact == 0, 0.0, grid.steps(weights))
    target = _approximate(exact, fitted)
    integers = _round(exact, steps, grid)
    plain = least = judged.error(integers * steps)
    signal = float(np.einsum("io,io->", exact, judged.inputs @ exact)) or 1.0
    order, factor = _factorize(fitted.inputs)
    best, clips = integers, np.ones(len(least))
    for clip in CLIPS:
        integers = _compensate(target, order, factor, steps * clip, grid)
        error = judged.error(integers * steps * clip)
        better = error < least
        if grid.is_found_again:
            better &= np.abs(integers).max(axis=0) == grid.high
        best, least, clips = (
            np.where(better, new, old) for new, old in ((integers, best), (error, least), (clip, clips))
        )
    return Rounded(best, steps * clips, int((least < plain).sum()), float(np.sqrt((plain - least).sum() / signal)))


def draw_rows(count: int) -> NDArray[np.intp]:
    """Return the positions of at most `ROWS` of so many rows, always the same ones."""
    if count <= ROWS:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, ROWS, replace=False))


def _round(weights: Doubles, steps: Doubles, grid: Grid) -> Doubles:
    return np.clip(np.rint(np.divide(weights, steps, out=np.zeros_like(steps), where=steps != 0)), grid.low, grid.high)


def _approximate(weights: Doubles, moments: Moments) -> Doubles:
    """Return the float weights with which the inputs give most nearly the outputs of the float model."""
    damped, damping = _damp(moments.inputs, PULL)
    return np.asarray(scipy.linalg.solve(damped, moments.outputs + damping * weights, assume_a="pos"))


def _damp(moments: Doubles, share: float) -> tuple[Doubles, float]:
    damping = share * float(np.diag(moments).mean()) or 1.0
    damped = moments.copy()
    damped[np.diag_indices_from(damped)] += damping
    return damped, damping


def _factorize(moments: Doubles) -> tuple[NDArray[np.intp], Doubles]:
    """Return the order of inputs, largest first, and the upper factor U of the damped inverse moments, U^T U."""
    damped, _ = _damp(moments, DAMPING)
    order = np.argsort(-np.diag(damped), kind="stable")
    reverse = order[::-1]
    lower = scipy.linalg.cholesky(damped[np.ix_(reverse, reverse)], lower=True)
    inverse, _ = scipy.linalg.lapack.dtrtri(lower, lower=1)
    return order, np.ascontiguousarray(inverse[::-1, ::-1])


def _compensate(target: Doubles, order: NDArray[np.intp], factor: Doubles, steps: Doubles, grid: Grid) -> Doubles:
    """Return the integers of the weights, rounded in this order."""
    left, integers = target[order], np.zeros_like(target)
    for start in range(0, len(left), BLOCK):
        end = min(start + BLOCK, len(left))
        errors = np.zeros((end - start, left.shape[1]))
        for row in range(start, end):
            place = order[row]
            integers[place] = _round(left[row], steps[place], grid)
            errors[row - start] = (left[row] - integers[place] * steps[place]) / factor[row, row]
            left[row + 1 : end] -= np.outer(factor[row, row + 1 : end], errors[row - start])
        left[end:] -= factor[start:end, end:].T @ errors
    return integers
