"""Measured sensitivities of a model's layers, looked up by the weights of a converted file's layers."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfopt.reports.sensitivity_report import LayerSensitivity, SensitivityReport

TOLERANCE = 1e-3  # of the shape of a distribution: converters fold batch norms in another order of operations


class Kernel(NamedTuple):
    """Identify a kernel in any layout, and times any factor: number of weights, and shape of their distribution.

    The shape is that of the absolute values: the mean of the squares divided by the square of the mean, and the
    largest value divided by the mean.
    """

    weights: int
    spread: float
    peak: float


def describe_kernel(array: NDArray[Any]) -> Kernel:
    """Return the identification of a kernel."""
    values = np.abs(array.astype(np.float64).ravel())
    mean = float(values.mean()) or 1.0
    return Kernel(values.size, float(np.square(values).mean()) / mean**2, float(values.max()) / mean)


class SensitivityTable:
    """The layers of a report of `measure_sensitivities`."""

    def __init__(self, report: SensitivityReport) -> None:
        """Store the report."""
        self._report = report

    def loss(self, kernel: Kernel | None, weights: str, inputs: str | None) -> float | None:
        """Return the loss of a layer with weights and inputs in these precisions; None if it was not measured."""
        layer = self._find(kernel) if kernel else None
        if layer is None or weights not in layer.rounded_weights:
            return None
        loss = layer.rounded_weights[weights].divergence
        if inputs and layer.rounded_inputs:  # a lookup has none
            if inputs not in layer.rounded_inputs:
                return None
            loss += layer.rounded_inputs[inputs].divergence
        return loss

    def predict_sum(self, limit: float) -> float | None:
        """Return the sum of losses up to which mixes degrade by at most the limit; None if no mix was measured."""
        met = None
        for mix in self._report.mixes:
            if mix.degradation > limit:
                return math.sqrt(met * mix.predicted) if met else mix.predicted / 2
            met = mix.predicted
        return met

    def _find(self, kernel: Kernel) -> LayerSensitivity | None:
        def is_same(layer: LayerSensitivity) -> bool:
            pairs = (layer.spread, kernel.spread), (layer.peak, kernel.peak)
            return layer.weights == kernel.weights and all(math.isclose(*pair, rel_tol=TOLERANCE) for pair in pairs)

        return next(filter(is_same, self._report.layers), None)
