"""The distillation loss: from the labels and from the teacher's outputs (docs/adr/0019-distillation.md).

    (1 - alpha) * labels + alpha * temperature^2 * KL(teacher at that temperature, student at that temperature)

Source: Hinton, Vinyals and Dean, Distilling the Knowledge in a Neural Network, 2015, https://arxiv.org/abs/1503.02531.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tensorflow as tf

from tfopt import keras_models
from tfopt.errors import ComponentError
from tfopt.training.datasets.dataset import LabelsAndTeacher
from tfopt.training.datasets.targets import by_output, is_built_in, loss_name

Kind = Literal["classes", "chances", "values"]
LOGITS, PROBABILITIES = "logits", "probabilities"
EPSILON = 1e-7  # smaller probabilities count as this, as in Keras's own losses
CLASSES = ("sparse_categorical_crossentropy", "categorical_crossentropy", "categorical_focal_crossentropy")
CHANCES = ("binary_crossentropy", "binary_focal_crossentropy")
VALUES = (
    *("mean_squared_error", "mse", "mean_absolute_error", "mae", "huber", "huber_loss", "log_cosh", "logcosh"),
    *("mean_absolute_percentage_error", "mape", "mean_squared_logarithmic_error", "msle"),
    *("cosine_similarity", "poisson"),
)
KINDS: dict[str, Kind] = {
    **dict.fromkeys(CLASSES, "classes"),
    **dict.fromkeys(CHANCES, "chances"),
    **dict.fromkeys(VALUES, "values"),
}


class UnsupportedLossError(ComponentError):
    """The module's loss, or its training step, has no form for a teacher."""


@dataclass(frozen=True)
class DistilledOutput:
    """An output of the student that is trained on the teacher's."""

    output: str
    shape: tuple[int, ...]  # its shape for one record
    kind: Kind  # exclusive classes, independent probabilities (chances), or values that are not probabilities
    loss: Any  # the loss that the module compiles it with
    logits: bool  # True if the student's output is logits
    weight: float


def distilled_outputs(model: Any, module: Path) -> list[DistilledOutput]:
    """Return the outputs of a compiled model that have a loss.

    Raises:
        UnsupportedLossError: If the distillation loss is not defined for an output's loss or shape, or the model
            has its own training step.
    """
    base = keras_models.library(model).Model
    own = [name for name in ("train_step", "compute_loss") if getattr(type(model), name) is not getattr(base, name)]
    if own:
        received = f"a teacher, and {type(model).__name__} of {module} with a {' and a '.join(own)} of its own"
        expected = "the loss that is passed to compile()"
        raise UnsupportedLossError(received, expected, "distill in the module, or leave the teacher out")
    losses = by_output(model, model.loss)
    weights = by_output(model, model._compile_config.config.get("loss_weights"))
    return [
        _distilled_output(name, tuple(tensor.shape[1:]), losses[name], weights[name])
        for name, tensor in zip(keras_models.served_names(model), model.outputs, strict=True)
        if losses[name] is not None
    ]


def _distilled_output(output: str, shape: tuple[int | None, ...], loss: Any, weight: float | None) -> DistilledOutput:
    name = loss_name(loss)
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    unusual = [key for key, usual in (("axis", -1), ("ignore_class", None)) if config.get(key, usual) not in (usual,)]
    if not is_built_in(loss) or name not in KINDS or unusual:
        raise UnsupportedLossError(
            f"a teacher, and output {output!r} with the loss {name}{''.join(f' and its {key}' for key in unusual)}",
            f"a loss with a known soft form: {', '.join((*CLASSES, *CHANCES))}, or a regression loss",
            "compile that output with such a loss, or leave the teacher out",
        )
    if None in shape:
        received = f"a teacher, and output {output!r} of shape {list(shape)}"
        expected = "an output of one size for all examples"
        raise UnsupportedLossError(received, expected, "set the sizes of the model's inputs, or leave the teacher out")
    sizes = tuple(int(size or 0) for size in shape)
    logits, weight = bool(config.get("from_logits", False)), 1.0 if weight is None else float(weight)
    return DistilledOutput(output, sizes, KINDS[name], loss, logits, weight)


@contextlib.contextmanager
def distillation_loss(
    model: Any,
    outputs: Sequence[DistilledOutput],
    formats: Mapping[str, str],
    *,
    temperature: float,
    alpha: float,
    class_weight: Mapping[int, float] | None = None,
) -> Iterator[None]:
    """Train a compiled model with the distillation loss on `LabelsAndTeacher` batches while the block runs.

    The loss of other batches does not change. The model is the student. ``formats`` has the format of the teacher's
    outputs of classes and chances, by output: logits or probabilities. The class weights are for labels and the teacher
    alike.
    """
    label_loss, label_metrics = model.compute_loss, model.compute_metrics
    soft = {each.output: soft_loss(model, each, formats.get(each.output) == LOGITS, temperature) for each in outputs}

    def compute_loss(
        x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **options: Any
    ) -> Any:
        if not isinstance(y, LabelsAndTeacher):
            return label_loss(x, y, y_pred, sample_weight, **options)
        weight, predictions = _example_weights(class_weight, y.labels), keras_models.outputs_by_name(model, y_pred)
        from_labels = tf.cast(label_loss(x, y.labels, y_pred, weight, **options), tf.float32)
        regularization = tf.add_n([tf.cast(each, tf.float32) for each in model.losses] or [tf.zeros(())])
        soft_losses = [
            each.weight * soft[each.output](y.teacher[each.output], predictions[each.output], sample_weight=weight)
            for each in outputs
        ]
        from_teacher = tf.add_n([tf.cast(each, tf.float32) for each in soft_losses])
        total = (1 - alpha) * from_labels + alpha * (from_teacher + regularization)
        if keras_models.is_keras_2(model):  # Keras 2 reports only the loss from the labels: correct its mean
            mean = model.compiled_loss.metrics[0]
            batch_size = tf.shape(tf.nest.flatten(x)[0])[0]
            mean.total.assign_add(tf.stop_gradient(total - from_labels) * tf.cast(batch_size, tf.float32))
        return total

    def compute_metrics(x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if not isinstance(y, LabelsAndTeacher):
            return label_metrics(x, y, y_pred, sample_weight)
        return label_metrics(x, y.labels, y_pred, _example_weights(class_weight, y.labels))

    model.compute_loss, model.compute_metrics = compute_loss, compute_metrics
    try:
        yield
    finally:
        del model.compute_loss, model.compute_metrics
        model.train_function = None


def soft_loss(model: Any, output: DistilledOutput, teacher_logits: bool, temperature: float) -> Callable[..., Any]:
    """Return the loss of a student's output for the teacher's, with the reduction of the module's loss."""
    losses: Any = keras_models.library(model).losses
    divergence = {"classes": _class_divergence, "chances": _chance_divergence}
    logits: dict[Kind, Callable[[Any], Any]] = {
        "classes": _log,
        "chances": lambda chances: _log(chances) - _log(1 - chances),
    }

    class SoftLoss(losses.Loss):  # type: ignore[misc]  # Keras is untyped
        """A loss of each example; Keras applies reduction, weights and masks."""

        def call(self, teacher: Any, student: Any) -> Any:
            if output.kind == "values":
                compiled = losses.get(output.loss)
                return getattr(compiled, "call", compiled)(teacher, student)
            teacher, student = tf.cast(teacher, tf.float32), tf.cast(student, tf.float32)
            teacher = teacher if teacher_logits else logits[output.kind](teacher)
            student = student if output.logits else logits[output.kind](student)
            return temperature**2 * divergence[output.kind](teacher / temperature, student / temperature)

    reduction = {"reduction": output.loss.reduction} if hasattr(output.loss, "reduction") else {}
    return SoftLoss(name="teacher", **reduction)


def _class_divergence(teacher: Any, student: Any) -> Any:
    """Compute the Kullback-Leibler divergence of the softmax distributions of logits."""
    log_p, log_q = tf.nn.log_softmax(teacher), tf.nn.log_softmax(student)
    return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), -1)


def _chance_divergence(teacher: Any, student: Any) -> Any:
    """Compute the mean Kullback-Leibler divergence of independent probabilities, given as logits."""
    positive = tf.sigmoid(teacher) * (tf.math.log_sigmoid(teacher) - tf.math.log_sigmoid(student))
    negative = tf.sigmoid(-teacher) * (tf.math.log_sigmoid(-teacher) - tf.math.log_sigmoid(-student))
    return tf.reduce_mean(positive + negative, -1)


def _log(probabilities: Any) -> Any:
    return tf.math.log(tf.maximum(probabilities, EPSILON))


def _example_weights(class_weight: Mapping[int, float] | None, labels: Any) -> Any:
    if not class_weight:
        return None
    table = tf.constant([class_weight[number] for number in range(len(class_weight))], tf.float32)
    if labels.shape.rank == 2 and labels.shape[1] > 1:  # one-hot
        return tf.gather(table, tf.argmax(labels, 1))
    return tf.gather(table, tf.cast(tf.reshape(labels, [-1]), tf.int32))
