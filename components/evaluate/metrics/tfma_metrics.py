"""Metrics of TensorFlow Model Analysis (TFMA) by the name of their class, with intervals by a jackknife as in TFMA."""

import copy
import functools
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError

PARTS = 20  # of the jackknife; TFMA's number
HIGHER = (
    *("AUC", "AUCPrecisionRecall", "BalancedAccuracy", "BinaryAccuracy", "CoefficientOfDiscrimination"),
    *("DiagnosticOddsRatio", "F1Score", "FowlkesMallowsIndex", "Informedness", "Markedness"),
    *("MatthewsCorrelationCoefficient", "NPV", "NegativePredictiveValue", "PPV", "PositiveLikelihoodRatio"),
    *("Precision", "Recall", "RelativeCoefficientOfDiscrimination", "Specificity", "SquaredPearsonCorrelation"),
    *("TNR", "TPR", "ThreatScore"),
)
LOWER = (
    *("BinaryCrossEntropy", "FNR", "FPR", "FallOut", "FalseDiscoveryRate", "FalseOmissionRate"),
    *("MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanSquaredError"),
    *("MeanSquaredLogarithmicError", "MissRate", "NegativeLikelihoodRatio"),
)
# No upper end: the worst record is the one with the largest difference of label and prediction.
ERRORS = ("BinaryCrossEntropy", "MeanAbsoluteError", "MeanSquaredError")
UNBOUNDED = (  # no upper end, and no record is known to be the worst
    *("DiagnosticOddsRatio", "MeanAbsolutePercentageError", "MeanSquaredLogarithmicError", "NegativeLikelihoodRatio"),
    *("PositiveLikelihoodRatio", "RelativeCoefficientOfDiscrimination"),
)

Array = NDArray[Any]
Record = tuple[float, float]  # label and prediction
TINY = 1e-7  # the logarithm of 0 is undefined


@dataclass
class Partition:
    """TFMA's accumulators of one metric and model, in parts that the jackknife leaves out one by one."""

    name: str  # name of TFMA's class
    # The accumulators of each part that has records, one for each of TFMA's computations
    parts: dict[int, list[Any]] = field(default_factory=dict)
    # The record with the largest error, with its error; None without records of one number
    worst: tuple[float, Record] | None = None
    is_binary: bool = True  # True if all labels are 0 or 1, and all predictions from 0 to 1

    def add(self, labels: Array, predictions: Array, first: int) -> None:
        """Add records; ``first`` is the number of the first one, which determines its part.

        Raises:
            ComponentError: If TFMA cannot compute the metric from them.
        """
        from tensorflow_model_analysis.metrics import StandardMetricInputs

        combiners, _ = _computations(self.name)
        labels, predictions, weight = labels.copy(), predictions.copy(), np.ones(1)  # TFMA may change them
        try:
            for row, (label, prediction) in enumerate(zip(labels, predictions, strict=True)):
                inputs = StandardMetricInputs(labels=label, predictions=prediction, example_weights=weight)
                number = (first + row) % PARTS
                states = self.parts.get(number) or [combiner.create_accumulator() for combiner in combiners]
                added = zip(combiners, states, strict=True)
                self.parts[number] = [combiner.add_input(state, inputs) for combiner, state in added]
        except Exception as error:
            shapes = f"labels of shape {labels.shape} and predictions of shape {predictions.shape}"
            received = f"metric tfma:{self.name}: raised with {shapes}\n{type(error).__name__}: {first_line(error)}"
            fix = "choose a metric that fits the task, or write a function as in docs/metrics.md"
            raise ComponentError(received, f"records that TFMA's {self.name} is defined for", fix) from error
        self._note_worst(labels, predictions)

    def merge(self, other: "Partition") -> None:
        """Add the accumulators of other records."""
        for number, states in other.parts.items():
            self.parts[number] = self._merged(self.parts[number], states) if number in self.parts else states
        self.worst = max(filter(None, (self.worst, other.worst)), default=None)
        self.is_binary &= other.is_binary

    def value(self) -> float:
        """Compute the metric over all records."""
        return self._value(functools.reduce(self._merged, self.parts.values()))

    def replicates(self, value: float, count: int, seed: int) -> NDArray[np.float64]:
        """Draw replicates with the jackknife's standard error, from the effect of each part on the metric.

        All models have the same parts and random numbers, so that differences of replicates are paired.
        """
        parts = [self.parts[number] for number in sorted(self.parts)]
        if len(parts) < 2:
            return np.full(count, value)
        before, after = list(accumulate(parts, self._merged)), list(accumulate(parts[::-1], self._merged))[::-1]
        inner = [self._merged(before[number - 1], after[number + 1]) for number in range(1, len(parts) - 1)]
        without = np.array([self._value(states) for states in (after[1], *inner, before[-2])])
        effects = (without - without.mean()) * np.sqrt(1 - 1 / len(parts))
        normal = np.random.Generator(np.random.SFC64(seed % 2**32)).standard_normal((count, len(parts)))
        return np.asarray(value + normal @ effects)

    def unseen_moves(self, value: float, baseline: "Partition") -> tuple[float, float] | None:
        """Return how far one more record lowers and raises the metric at most; None if its worst value is not known.

        The worst record of the baseline may be the candidate's, too.
        """
        if self.name in UNBOUNDED:
            return None
        records: list[Record] = []
        if self.name in ERRORS:
            worst = max(filter(None, (self.worst, baseline.worst)), default=None)
            if worst:
                label = worst[1][0]
                best = float(np.clip(label, TINY, 1 - TINY)) if self.name == "BinaryCrossEntropy" else label
                records = [worst[1], (label, best)]
        elif self.is_binary:
            records = [(label, prediction) for label in (0.0, 1.0) for prediction in (0.0, 1.0)]
        values = np.array([self._value_with(*record) for record in records])
        moves = values[np.isfinite(values)] - value
        return (min(0.0, float(moves.min())), max(0.0, float(moves.max()))) if len(moves) else None

    def _value_with(self, label: float, prediction: float) -> float:
        other = Partition(self.name)
        other.add(np.array([[label]]), np.array([[prediction]]), 0)
        return self._value(functools.reduce(self._merged, [*self.parts.values(), *other.parts.values()]))

    def _note_worst(self, labels: Array, predictions: Array) -> None:
        """Note the record with the largest error, and if there are others than labels and probabilities of a class."""
        if not len(labels):
            return
        try:
            pairs = np.concatenate([labels.reshape(len(labels), -1), predictions.reshape(len(labels), -1)], 1)
            pairs = pairs.astype(np.float64)
        except (TypeError, ValueError):  # texts
            pairs = np.empty((0, 0))
        if pairs.shape[1] != 2:
            self.is_binary = False
            return
        actual, predicted = pairs.T
        self.is_binary &= bool(np.isin(actual, (0, 1)).all() and ((predicted >= 0) & (predicted <= 1)).all())
        errors = np.abs(actual - predicted)
        row = int(np.lexsort((predicted, actual, errors))[-1])  # of equal errors the same one in each order of records
        own = (float(errors[row]), (float(actual[row]), float(predicted[row])))
        self.worst = max(filter(None, (self.worst, own)))

    def _merged(self, states: list[Any], others: list[Any]) -> list[Any]:
        combiners, _ = _computations(self.name)
        pairs = zip(combiners, copy.deepcopy(states), copy.deepcopy(others), strict=True)
        # An iterator, because some of TFMA's combiners count the first element of a list twice.
        return [combiner.merge_accumulators(iter([own, other])) for combiner, own, other in pairs]

    def _value(self, states: list[Any]) -> float:
        combiners, derived = _computations(self.name)
        results: dict[Any, Any] = {}
        with np.errstate(all="ignore"):  # undefined results are NaN
            for combiner, state in zip(combiners, copy.deepcopy(states), strict=True):
                results |= combiner.extract_output(state)
            for computation in derived:
                results |= computation.result(results)
        return float(results[next(reversed(results))])


def check_name(name: str) -> None:
    """Raise ComponentError unless TFMA is installed and has this metric, with a known direction."""
    try:
        import tensorflow_model_analysis  # noqa: F401
    except ImportError as error:
        received = f"metrics=tfma:{name}: {first_line(error)}"
        fix = "pip install 'tfopt[tfx]' (the image tfx has it), or write a function as in docs/metrics.md"
        raise ComponentError(received, "the package tensorflow_model_analysis where the step runs", fix) from error
    if name not in (*HIGHER, *LOWER):
        expected = f"a metric of TFMA with one number and a direction: {', '.join(sorted((*HIGHER, *LOWER)))}"
        raise ComponentError(f"metrics=tfma:{name}", expected, nearest(name, (*HIGHER, *LOWER)))


@functools.cache
def _computations(name: str) -> tuple[list[Any], list[Any]]:
    """Return the combiners of a metric, and the computations that are derived from their results."""
    from tensorflow_model_analysis import metrics

    computations = getattr(metrics, name)().computations()
    combiners = [item.combiner for item in computations if isinstance(item, metrics.MetricComputation)]
    for combiner in combiners:
        combiner.setup()
    return combiners, [item for item in computations if not isinstance(item, metrics.MetricComputation)]
