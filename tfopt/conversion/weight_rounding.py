"""Round the weights of a layer to a grid so that its outputs change little, by second moments of its inputs.

Rows of weights, one for each input, are rounded one after the other. The error of a row is compensated by the rows that
follow, by the Cholesky factor of the inverse moments (GPTQ: Frantar et al., 2023, https://arxiv.org/abs/2210.17323).
Inputs are those of the model as rounded so far, and outputs to approximate are those of the float model, so that a
layer also compensates for earlier ones.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DAMPING = 0.03  # of the mean of the inputs' squares, added to each: few records determine few directions
PULL = 0.1  # the same, towards the float weights where the outputs of the float model are approximated
CLIPS = (1.0, 0.9, 0.8, 0.7, 0.6)  # largest value of the grid, as a multiple of the largest weight of a channel
BLOCK = 64  # rows whose errors are applied to the following rows at once
WAITING = 1024  # rows of inputs that are multiplied at once
JUDGED = 3  # one record of so many is not used to round, but to choose between the results


@dataclass
class Moments:
    """Sums over records: products of inputs, and of inputs and the outputs of the float model without bias."""

    inputs: Any = 0.0  # [inputs, inputs]
    outputs: Any = 0.0  # [inputs, outputs]
    _rows: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = field(default_factory=list)
    _waiting: int = 0

    def add(self, rows: NDArray[np.float32], outputs: NDArray[np.float32]) -> None:
        """Add rows of inputs ``[rows, inputs]`` and of outputs."""
        self._rows.append((rows, outputs))
        self._waiting += len(rows)
        if self._waiting >= WAITING:
            self.finish()

    def finish(self) -> None:
        """Add the rows that wait for others."""
        if self._rows:
            rows, outputs = (np.concatenate(parts) for parts in zip(*self._rows, strict=True))
            self.inputs = self.inputs + (rows.T @ rows).astype(np.float64)
            self.outputs = self.outputs + (rows.T @ outputs).astype(np.float64)
        self._rows, self._waiting = [], 0

    def error(self, weights: Floats) -> Floats:
        """Return the squared error of each output, up to a constant that does not depend on the weights."""
        products = self.inputs @ weights - 2 * self.outputs
        return np.asarray(np.einsum("io,io->o", weights, products))


@dataclass(frozen=True)
class Rounded:
    """Weights on a grid, and the part of the squared error of plain rounding that is removed on other records."""

    weights: NDArray[np.float32]
    channels: int  # whose weights are not those of plain rounding
    removed: float


def round_weights(weights: NDArray[np.float32], fitted: Moments, judged: Moments, levels: int) -> Rounded:
    """Return weights ``[inputs, outputs]`` on a symmetric grid for each output, with its largest value in use.

    A quantizer that takes the largest weight of a channel for the largest level thus finds the same grid. Of the
    clipped grids and plain rounding, the one with the least error in ``judged`` is used for each channel.
    """
    exact = weights.astype(np.float64)
    largest = np.abs(exact).max(axis=0)
    steps = np.where(largest > 0, largest, 1.0) / levels
    target = _approximate(exact, fitted)
    best = np.clip(np.rint(exact / steps), -levels, levels) * steps
    plain = least = judged.error(best)
    scale = float(np.einsum("io,io->", exact, judged.inputs @ exact)) or 1.0  # of the outputs, to compare errors
    order, factor = _factorize(fitted.inputs)
    changed = np.zeros(len(least), bool)
    for clip in CLIPS:
        integers = _compensate(target, order, factor, steps * clip, levels)
        candidate = integers * steps * clip
        error = judged.error(candidate)
        better = (np.abs(integers).max(axis=0) == levels) & (error < least) & (largest > 0)
        best, least, changed = np.where(better, candidate, best), np.where(better, error, least), changed | better
    return Rounded(best.astype(np.float32), int(changed.sum()), float((plain - least).sum()) / scale)


def _approximate(weights: Floats, moments: Moments) -> Floats:
    """Return the float weights with which the given inputs give most nearly the outputs of the float model."""
    damped, damping = _damp(moments.inputs, PULL)
    return np.asarray(scipy.linalg.solve(damped, moments.outputs + damping * weights, assume_a="pos"))


def _damp(moments: Floats, share: float) -> tuple[Floats, float]:
    damping = share * float(np.diag(moments).mean()) or 1.0
    damped = moments.copy()
    damped[np.diag_indices_from(damped)] += damping
    return damped, damping


def _factorize(moments: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return the order of inputs, largest first, and the upper factor U of the damped inverse moments, U^T U."""
    damped, _ = _damp(moments, DAMPING)
    order = np.argsort(-np.diag(damped), kind="stable")
    reverse = order[::-1]
    lower = scipy.linalg.cholesky(damped[np.ix_(reverse, reverse)], lower=True)
    inverse, _ = scipy.linalg.lapack.dtrtri(lower, lower=1)
    return order, np.ascontiguousarray(inverse[::-1, ::-1])


def _compensate(target: Floats, order: NDArray[np.intp], factor: Floats, steps: Floats, levels: int) -> Floats:
    """Return the integers of the weights, rounded in this order."""
    left, integers = target[order], np.zeros_like(target)
    for start in range(0, len(left), BLOCK):
        end = min(start + BLOCK, len(left))
        errors = np.zeros((end - start, left.shape[1]))
        for row in range(start, end):
            integers[order[row]] = np.clip(np.rint(left[row] / steps), -levels, levels)
            errors[row - start] = (left[row] - integers[order[row]] * steps) / factor[row, row]
            left[row + 1 : end] -= np.outer(factor[row, row + 1 : end], errors[row - start])
        left[end:] -= factor[start:end, end:].T @ errors
    return integers
