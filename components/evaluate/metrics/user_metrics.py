"""The user's metrics: find the function by its name, call it on batches, and check what it returns."""

import functools
import importlib
import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import PythonModule
from tfopt.components.evaluate.metrics.task_metrics import LARGEST, Scoring
from tfopt.components.evaluate.metrics.tfma_metrics import Partition, check_name
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.measurement.goals import QUALITY
from tfopt.metric_table import CLASSIFICATION, COSTS, ERROR, mean_metrics
from tfopt.storage.remote_files import local_copy
from tfopt.training.user_module import UserModule

MODULE, TFMA = "module", "tfma"  # the input `module`, and TensorFlow Model Analysis
REFERENCE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")
MEASURED = (QUALITY, mean_metrics(CLASSIFICATION)[0].name, ERROR, *COSTS)  # names that goals use for others

Array = NDArray[Any]


@dataclass(frozen=True)
class UserMetric:
    """A metric of the user, which workers load by its name."""

    text: str  # the reference as the user wrote it
    module: str  # the module: `MODULE`, or the dotted name of an installed one
    name: str  # name of the function, and of the metric
    path: str = ""  # path of the input `module`; empty for an installed one
    source: bytes = b""  # content of that file, so that workers on other machines have it
    higher_is_better: bool = False  # True if a higher value is better
    terms: int = 1  # number of terms of a record

    def record_terms(self, labels: Array, predictions: Array) -> NDArray[np.float64]:
        """Compute the terms of each record, ``[records, terms]``.

        Raises:
            ComponentError: If the function raises, or does not return finite numbers for each record.
        """
        count = len(labels)
        doing = f"{count} labels of shape {labels.shape} and predictions of shape {predictions.shape}"
        returned = self._call(_function(self), doing, labels.copy(), predictions.copy())
        try:
            terms = np.asarray(returned, np.float64)
        except (TypeError, ValueError):
            raise self._refuse(f"returned {type(returned).__name__}", count) from None
        if terms.ndim not in (1, 2) or len(terms) != count or not terms.size:
            raise self._refuse(f"returned the shape {terms.shape} for {doing}", count)
        if wrong := int((~(np.abs(terms) <= LARGEST)).reshape(count, -1).any(1).sum()):
            raise ComponentError(
                f"metric {self.text}: NaN, infinity or a number beyond {LARGEST:g} for {wrong} of {count} records",
                "finite numbers for every record",
                "return 0 in all terms of a record that does not count",
            )
        return terms.reshape(count, -1)

    def value(self, sums: Array, records: float) -> float:
        """Compute the metric from the sums of the terms over records; NaN where it is not defined.

        Raises:
            ComponentError: If ``finish`` raises, or does not return a number.
        """
        finish = getattr(_function(self), "finish", None)
        if finish is None:
            return float(sums[0] / records) if records else np.nan
        with np.errstate(all="ignore"):
            value = self._call(finish, f"finish with sums of shape {sums.shape}", sums.copy())
        try:
            return float(value)
        except (TypeError, ValueError):
            received = f"metric {self.text}: finish returned {type(value).__name__}"
            raise ComponentError(received, "one number", f"return a float from {self.name}.finish(sums)") from None

    def _call(self, function: Callable[..., Any], doing: str, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            trace = error.__traceback__
            text = "".join(traceback.format_exception(type(error), error, trace and trace.tb_next)).rstrip()
            received = f"metric {self.text}: raised with {doing}\n{text}"
            fix = "correct the line shown above; return NaN from finish where the metric is not defined"
            raise ComponentError(received, "a function of labels and predictions that does not raise", fix) from error

    def _refuse(self, received: str, count: int) -> ComponentError:
        expected = f"an array [{count}] with the metric of each record, or [{count}, terms]"
        fix = f"return one row for each record from {self.name}(labels, predictions)"
        return ComponentError(f"metric {self.text}: {received}", expected, fix)


def read_metrics(texts: Sequence[str]) -> tuple[UserMetric, ...]:
    """Parse references to metrics; raise ComponentError if the syntax differs, or two metrics have the same name.

    >>> [metric.name for metric in read_metrics(["module:mean_iou", "my_package.metrics:dice"])]
    ['mean_iou', 'dice']
    """
    metrics = []
    for text in texts:
        match = REFERENCE.fullmatch(text.strip())
        if not match or match[1].endswith(".py"):
            function = text.rpartition(":")[2] or "FUNCTION"
            raise ComponentError(
                f"metrics={text!r}",
                f"{MODULE}:FUNCTION of the input module, PACKAGE.MODULE:FUNCTION of an installed one, or {TFMA}:CLASS",
                f"pass your file as the input module, and metrics={MODULE}:{function}",
            )
        metrics.append(UserMetric(text.strip(), match[1], match[2]))
    names = [metric.name for metric in metrics]
    if wrong := [name for name in names if name in MEASURED or names.count(name) > 1]:
        expected = f"different names, none of {', '.join(MEASURED)}"
        raise ComponentError(f"metrics={list(texts)}: the name {wrong[0]}", expected, "give the function another name")
    return tuple(metrics)


def load_metrics(texts: Sequence[str], module: PythonModule | None) -> tuple[UserMetric, ...]:
    """Parse references and load the functions.

    Raises:
        ComponentError: If a function is missing, or has no ``higher_is_better``, or TFMA is not installed.
    """
    metrics = []
    for metric in read_metrics(texts):
        if metric.module == TFMA:
            check_name(metric.name)
            metrics.append(metric)
            continue
        if metric.module == MODULE:
            if module is None:
                received = f"metrics={metric.text} without the input module"
                raise ComponentError(received, "the Python file with the function", "pass module=FILE.py")
            file = PythonModule.open(local_copy(module.uri)).path
            metric = replace(metric, path=str(file), source=file.read_bytes())
        function = _function(metric)
        higher = getattr(function, "higher_is_better", None)
        if isinstance(function, type) or not isinstance(higher, bool):
            kind = "a class" if isinstance(function, type) else "without higher_is_better"
            expected = "a function, or an object that can be called, with higher_is_better = True or False"
            fix = f"write {metric.name}.higher_is_better = True below the function, or False for an error"
            raise ComponentError(f"metric {metric.text}: {kind}", expected, fix)
        metrics.append(replace(metric, higher_is_better=higher))
    return tuple(metrics)


def measure_first_batch(
    metrics: Sequence[UserMetric], scoring: Scoring, labels: Array, outputs: Array
) -> tuple[tuple[UserMetric, ...], tuple[str, ...]]:
    """Return the metrics with their number of terms, and the names of TFMA's; check all on a batch.

    Raises:
        ComponentError: If a metric has the name of another one, or its function returns the wrong thing.
    """
    tfma = tuple(metric.name for metric in metrics if metric.module == TFMA)
    for name in tfma:
        probabilities = scoring.probabilities(outputs.reshape(len(outputs), -1))
        Partition(name).add(scoring.targets(labels), probabilities, 0)
    measured = []
    for metric in metrics:
        if metric.module == TFMA:
            continue
        if metric.name in scoring.names:
            received = f"metrics={metric.text}: the name {metric.name}"
            expected = f"a name other than those of the evaluation, {', '.join(scoring.names)}"
            raise ComponentError(received, expected, "give the function another name")
        terms = metric.record_terms(labels, outputs)
        if terms.shape[1] > 1 and not callable(getattr(_function(metric), "finish", None)):
            received = f"metric {metric.text}: {terms.shape[1]} terms of each record, and no finish"
            fix = f"write {metric.name}.finish = lambda sums: sums[0] / sums[1], or return one number for each record"
            raise ComponentError(received, f"{metric.name}.finish, which computes the metric from their sums", fix)
        metric.value(terms.sum(0), len(terms))
        measured.append(replace(metric, terms=terms.shape[1]))
    return tuple(measured), tfma


_user_module = functools.cache(UserModule)


@functools.cache
def _function(metric: UserMetric) -> Callable[..., Any]:
    name = metric.name
    if metric.module == MODULE:
        namespace: Any = _user_module(Path(metric.path), metric.source).namespace
    else:
        try:
            namespace = vars(importlib.import_module(metric.module))
        except Exception as error:
            received = f"metric {metric.text}: importing {metric.module} raised {type(error).__name__}: {error}"
            fix = f"install it, or pass its file as the input module, and metrics={MODULE}:{name}"
            raise ComponentError(received, "a module that is installed where the step runs", fix) from error
    function = namespace.get(name)
    if not callable(function):
        names = [key for key, value in namespace.items() if callable(value) and not key.startswith("_")]
        received = f"metric {metric.text}: no function {name}"
        raise ComponentError(received, f"def {name}(labels, predictions)", nearest(name, names))
    return function  # type: ignore[no-any-return]
