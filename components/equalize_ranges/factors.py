"""Choose factors for the channels of a group, by an estimate of the noise that 8 bits add.

A kernel that reads x with weights W makes, of one scale for x and one for each output o of W,

    noise(o)  = (range(x / s) / 255)^2 / 12  sum_i (s_i W_io)^2  +  (max_i |s_i W_io| / 127)^2 / 12  sum_i (x_i / s_i)^2

for factors s. Rounding errors are taken as independent and evenly distributed, and as no larger than what is rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.matching.linear_ops import PLAIN, TRANSPOSED

Floats = NDArray[np.float64]

ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
OCTAVES = 12  # between the factors of channels at most: values that are rare on the examples would be cut off
GAIN = 0.8  # of the power of the noise, a tenth of its amplitude, with which a group is equalized
SIMILAR = "its channels have similar ranges"


@dataclass(frozen=True)
class Reading:
    """Channels as one kernel reads them, the statistics of each, and the weights ``[channels, outputs, window]``."""

    low: Floats
    high: Floats
    squares: Floats  # means
    energy: Floats  # sums of squared weights ``[channels, outputs]``
    largest: Floats  # weights of the same shape, without signs
    window: int
    repeats: int


@dataclass(frozen=True)
class Factors:
    """Exponents of two for each channel, and their effect: estimated noise-to-signal ratio and spread of ranges."""

    exponents: NDArray[np.int64]
    alpha: float
    noise: tuple[float, float]  # before, after
    spread: tuple[float, float]


def reading_of(
    op: str, kernel: NDArray[np.generic], axis: int, statistics: tuple[Floats, Floats, Floats], repeats: int
) -> Reading:
    """Summarize the kernel of an operation that reads channels along an axis."""
    weights = np.moveaxis(np.abs(kernel.astype(np.float64)), axis, 0)  # [channels, ..., outputs]
    if op == "DepthwiseConv2dNative":  # each channel has outputs of its own
        by_output = np.moveaxis(weights, -1, 1).reshape(len(weights), weights.shape[-1], -1)
        own = np.eye(len(weights))[:, :, None]
        sums = (by_output**2).sum(axis=2), by_output.max(axis=2)
        energy, largest = ((own * values).reshape(len(weights), -1) for values in sums)
        return Reading(*statistics, energy, largest, by_output.shape[2], repeats)
    windows = weights.reshape(len(weights), -1, weights.shape[-1] if op in (*PLAIN, *TRANSPOSED) else weights[0].size)
    return Reading(*statistics, (windows**2).sum(axis=1), windows.max(axis=1), windows.shape[1], repeats)


def choose_factors(readings: Sequence[Reading], channels: int) -> Factors | str:
    """Return the factors with the least estimated noise, or why none is used.

    Neither the noise of activations nor that of weights may grow: the former differs from one value to the next, so
    that later layers average it, and the latter does not. How much they average is not known here.
    """
    largest = _over_repeats(channels, [np.maximum(-reading.low, reading.high) for reading in readings], readings)
    weights = _over_repeats(channels, [reading.largest.max(axis=1) for reading in readings], readings)
    if not largest.any() or not weights.any():
        return "its values or the weights that read it are zero"
    peaks, weights = (np.maximum(values, values.max() / 2**OCTAVES) for values in (largest, weights))
    before = estimate_noise(readings, np.zeros(channels, np.int64))
    best = None
    for alpha in ALPHAS:
        exact = alpha * np.log2(peaks) - (1 - alpha) * np.log2(weights)
        exponents = np.rint(exact - exact.mean()).astype(np.int64)
        noise = estimate_noise(readings, exponents)
        grows = any(new > 1.01 * old for old, new in zip(before, noise, strict=True))
        if not grows and (best is None or sum(noise) < best.noise[1]):
            spread = _spread(largest), _spread(largest / np.ldexp(1.0, exponents))
            best = Factors(exponents, alpha, (sum(before), sum(noise)), spread)
    return best if best and best.noise[1] < GAIN * sum(before) else SIMILAR


def estimate_noise(readings: Sequence[Reading], exponents: NDArray[np.int64]) -> tuple[float, float]:
    """Return the mean noise-to-signal ratios that rounding activations and weights adds, for channels with factors."""
    ratios = []
    for reading in readings:
        scale = np.tile(np.ldexp(1.0, exponents), reading.repeats)[:, None]
        low, high = (values / scale[:, 0] for values in (reading.low, reading.high))
        step = (max(high.max(), 0) - min(low.min(), 0)) / 255
        steps = (scale * reading.largest).max(axis=0) / 127
        squares, energy = reading.squares[:, None] / scale**2, reading.energy * scale**2
        activations = np.minimum(step**2 / 12, squares) * energy
        weights = np.minimum(reading.window * steps**2 / 12, energy) * squares
        signal = (squares * energy).sum() or np.inf
        ratios.append((activations.sum() / signal, weights.sum() / signal))
    activations, weights = np.mean(ratios, axis=0)
    return float(activations), float(weights)


def _over_repeats(channels: int, values: Sequence[Floats], readings: Sequence[Reading]) -> Floats:
    """Return the largest value of each channel over all readings."""
    pairs = zip(values, readings, strict=True)
    return np.asarray(
        np.max([value.reshape(reading.repeats, channels).max(axis=0) for value, reading in pairs], axis=0)
    )


def _spread(peaks: Floats) -> float:
    """Return the largest of the ranges of channels as a multiple of their geometric mean, without constant zeros."""
    return float(peaks.max() / np.exp(np.log(peaks[peaks > 0]).mean()))
