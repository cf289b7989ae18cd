"""All data that a worker of an evaluation needs besides the records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.metrics.task_metrics import Scoring
from tfopt.components.evaluate.metrics.user_metrics import UserMetric
from tfopt.components.evaluate.parameters import Settings


@dataclass(frozen=True)
class Plan:
    """All data that a worker needs besides the records.

    Attributes:
        settings: The parameters.
        models: The address of each model and its digest, the baseline first.
        signature: The signature of the models that is evaluated.
        features: Dtype and shape of each feature of the examples.
        batch_size: Records in a batch, the same for all workers, because the bootstrap weights depend on the batch.
        scoring: The metrics of the task.
        output: The evaluated output of the baseline.
        output_shape: Shape of that output for one record.
        metrics: The user's metrics.
        tfma: Names of TFMA's metrics.
        metric_grain: Grain of the sums of each column of `values`.
        output_grain: Grain of the sums of output differences.
        groups: Numbers of the models that are loaded together.
        stored_batches: Batches whose predictions are stored if there are several groups.
        calibrated: Identifiers of the records that each model was calibrated on.
        constant: Output of the constant model, ``[width]``; None without one.
    """

    settings: Settings
    models: tuple[tuple[str, str], ...]
    signature: str
    features: Mapping[str, TensorSpec]
    batch_size: int
    scoring: Scoring
    output: str
    output_shape: tuple[int, ...]
    metrics: tuple[UserMetric, ...]
    tfma: tuple[str, ...]
    metric_grain: NDArray[np.float64]
    output_grain: float
    groups: tuple[range, ...]
    stored_batches: int
    calibrated: tuple[frozenset[str], ...]
    constant: NDArray[np.float64] | None = None

    @property
    def rows(self) -> int:
        """The number of rows of the sums: the models, then the constant model."""
        return len(self.models) + (self.constant is not None)

    @property
    def columns(self) -> int:
        """The number of columns of `values`."""
        return len(self.metric_grain)

    def values(self, predictions: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
        """Compute the metrics of the task and the terms of the user's metrics for each record, ``[records, columns]``.

        Raises:
            ComponentError: If a metric of the user raises, or returns the wrong thing.
        """
        shaped = predictions.reshape(len(predictions), *self.output_shape)
        terms = [metric.record_terms(labels, shaped) for metric in self.metrics]
        return np.concatenate([self.scoring.values(predictions, self.scoring.targets(labels)), *terms], 1)
