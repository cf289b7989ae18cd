from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.metrics.task_metrics import Scoring
from tfopt.components.evaluate.metrics.user_metrics import UserMetric
from tfopt.components.evaluate.parameters import Settings


@dataclass(frozen=True)
class Plan:
    """All data that a worker needs besides the records."""

    settings: Settings
    models: tuple[tuple[str, str], ...]  # the address of each model and its digest, the baseline first
    signature: str  # the signature of the models that is evaluated
    features: Mapping[str, TensorSpec]  # dtype and shape of each feature of the examples
    batch_size: int  # records in a batch, the same for all workers, because the bootstrap weights depend on the batch
    scoring: Scoring
    output: str  # the evaluated output of the baseline
    output_shape: tuple[int, ...]  # shape of that output for one record
    metrics: tuple[UserMetric, ...]
    tfma: tuple[str, ...]  # names of TFMA's metrics
    metric_grain: NDArray[np.float64]  # grain of the sums of each column of `values`
    output_grain: float  # grain of the sums of output differences
    groups: tuple[range, ...]  # numbers of the models that are loaded together
    stored_batches: int  # batches whose predictions are stored if there are several groups
    calibrated: tuple[frozenset[str], ...]  # identifiers of the records that each model was calibrated on
    constant: NDArray[np.float64] | None = None  # output of the constant model, [width]; None without one
    crashed: Mapping[int, str] = field(default_factory=dict)  # why models are not run that end their process

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
