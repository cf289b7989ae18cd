"""The metrics in one table: all facts about a metric that other modules use, except how it is computed."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

TASKS = ("classification", "binary", "multi_label", "regression", "other")  # of `evaluate`
CLASSIFICATION, BINARY, MULTI_LABEL, REGRESSION, OTHER = TASKS
TWO_OR_MORE, ALL_CLASSES = (CLASSIFICATION, BINARY), (CLASSIFICATION, BINARY, MULTI_LABEL)


@dataclass(frozen=True)
class MetricRow:
    """A metric."""

    name: str  # in goals and reports; ``{k}`` stands for the k of top-k accuracy
    # ``share``: each record has 0 or 1, and the intervals are exact; ``mean``: of a number of each record; ``counts``:
    # from counts of classes, with ``macro_`` for the mean over several; ``area``: under a curve of two classes;
    # ``parity``: from the baseline's outputs; ``files``, ``process`` (depends on the machine) and ``clock`` (depends on
    # its load, too), ``load`` (the same, from requests at a rate): costs.
    kind: Literal["share", "mean", "counts", "area", "parity", "files", "process", "clock", "load"]
    higher_is_better: bool = False
    tasks: tuple[str, ...] = ()  # of `evaluate`. The first metric of a task is its main one, ``quality`` in goals
    # ``%`` for a number from 0 to 1 that is shown in percent and compared in points; empty for a plain number
    unit: Literal["", "%", "bytes", "ms", "s", "/s"] = ""
    title: str = ""  # its name in prose, if that is not its name with spaces
    keras: tuple[str, ...] = ()  # other names that Keras has for it
    scale: str = ""  # what a value without a unit counts, with ``{label}`` for the label

    def names(self, task: str, top_k: int) -> list[str]:
        """Return the names that it has in evaluations of a task."""
        if task not in self.tasks:
            return []
        has_macro = self.kind == "counts" and task != BINARY
        return [self.name.format(k=top_k), *([f"macro_{self.name}"] if has_macro else [])]


METRICS = (
    MetricRow("accuracy", "share", True, TWO_OR_MORE, "%", keras=("acc",)),
    MetricRow("top_{k}_accuracy", "share", True, (CLASSIFICATION,), "%"),
    MetricRow("label_accuracy", "mean", True, (MULTI_LABEL,), "%"),
    MetricRow("exact_match_accuracy", "share", True, (MULTI_LABEL,), "%"),
    MetricRow("log_loss", "mean", False, ALL_CLASSES, scale="in nats"),
    MetricRow("mean_absolute_error", "mean", False, (REGRESSION,), scale="in units of {label}"),
    MetricRow("mean_squared_error", "mean", False, (REGRESSION,), scale="in squared units of {label}"),
    MetricRow("precision", "counts", True, ALL_CLASSES),
    MetricRow("recall", "counts", True, ALL_CLASSES),
    MetricRow("f1", "counts", True, ALL_CLASSES, keras=("f1_score",)),
    MetricRow("auc", "area", True, TWO_OR_MORE),
    MetricRow("pr_auc", "area", True, TWO_OR_MORE),
    MetricRow("latency", "clock", unit="ms"),
    MetricRow("latency_p90", "clock", unit="ms", title="latency (p90)"),
    MetricRow("latency_p99", "clock", unit="ms", title="latency (p99)"),
    MetricRow("throughput", "clock", True, unit="/s"),
    MetricRow("capacity", "load", True, unit="/s"),
    MetricRow("p99_at_rate", "load", unit="ms", title="p99 at the rate"),
    MetricRow("nodes", "load"),
    MetricRow("cost", "load", title="cost of a million predictions"),
    MetricRow("size", "files", unit="bytes"),
    MetricRow("size_gzipped", "files", unit="bytes", title="gzipped size"),
    MetricRow("memory", "process", unit="bytes"),
    MetricRow("load", "clock", unit="s"),
    MetricRow("cold_start", "clock", unit="s"),
    MetricRow("error", "parity"),
    MetricRow("agreement", "parity", True, unit="%"),
)


def names_of_kind(*kinds: str) -> tuple[str, ...]:
    """Return the names of the metrics of some kinds, in the order of the table.

    >>> names_of_kind("files"), names_of_kind("area")
    (('size', 'size_gzipped'), ('auc', 'pr_auc'))
    """
    return tuple(row.name for row in METRICS if row.kind in kinds)


COUNTED, AREAS = names_of_kind("counts"), names_of_kind("area")
SIZES, LOADS, TIMES = names_of_kind("files"), names_of_kind("load"), names_of_kind("clock", "load")
COSTS = names_of_kind("files", "process", "clock", "load")
ERROR = "error"  # the largest difference to the baseline's output
# Endings of names, also of metrics of users and of Keras: ``val_binary_accuracy``.
HIGHER_IS_BETTER = tuple(end for row in METRICS if row.tasks and row.higher_is_better for end in (row.name, *row.keras))
PERCENT = tuple(row.name for row in METRICS if row.unit == "%")


@cache
def find_metric(metric: str) -> MetricRow | None:
    """Return the row of a metric by its name in a report; None for a metric of a user.

    >>> find_metric("top_5_accuracy").kind, find_metric("macro_f1").name, find_metric("mean_iou")
    ('share', 'f1', None)
    """
    name = re.sub(r"(?<=^top_)\d+(?=_accuracy$)", "{k}", metric)
    plain = metric.removeprefix("macro_")
    return next((row for row in METRICS if row.name == name or (row.kind == "counts" and row.name == plain)), None)


def mean_metrics(task: str) -> list[MetricRow]:
    """Return the metrics of a task that are means over records, shares included; the first is the main one."""
    return [row for row in METRICS if task in row.tasks and row.kind in ("share", "mean")]


def task_metrics(task: str, top_k: int) -> list[str]:
    """Return the names of all metrics that an evaluation of a task can have; ``auto`` is any of the tasks."""
    tasks = TASKS if task == "auto" else (task,)
    return list(dict.fromkeys(name for task in tasks for row in METRICS for name in row.names(task, top_k)))
