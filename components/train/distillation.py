"""The loss of a student: what its labels say, and what its teacher answered (docs/adr/0019-distillation.md).

    (1 - alpha) * labels + alpha * temperature^2 * KL(teacher at that temperature, student at that temperature)

Source: Hinton, Vinyals and Dean, Distilling the Knowledge in a Neural Network, 2015, https://arxiv.org/abs/1503.02531.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tfopt.components.train.subjects import Subject
from tfopt.components.train.teacher_predictions import LOGITS
from tfopt.keras_models import io as keras_models
from tfopt.training.teacher_outputs import Taught

SMALLEST = 1e-7  # a probability below counts as this, as in Keras's own losses


@contextlib.contextmanager
def distilled(
    model: Any,
    subjects: Sequence[Subject],
    forms: Mapping[str, str],
    *,
    temperature: float,
    alpha: float,
    class_weight: Mapping[int, float] | None = None,
) -> Iterator[None]:
    """Let a compiled model learn from `Taught` batches while the block runs; others are as they were.

    Args:
        model: The student.
        subjects: What its outputs learn.
        forms: What the answers about classes and chances are.
        temperature: What logits are divided by.
        alpha: The teacher's part of the loss.
        class_weight: How much an example of each class counts, for labels and answers alike.
    """
    import tensorflow as tf

    by_labels, measure = model.compute_loss, model.compute_metrics
    soft = {each.output: soft_loss(model, each, forms.get(each.output) == LOGITS, temperature) for each in subjects}

    def loss(x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **more: Any) -> Any:
        if not isinstance(y, Taught):
            return by_labels(x, y, y_pred, sample_weight, **more)
        weight, given = _weights(class_weight, y.labels), keras_models.named(model, y_pred)
        labels = tf.cast(by_labels(x, y.labels, y_pred, weight, **more), tf.float32)
        own = tf.add_n([tf.cast(each, tf.float32) for each in model.losses] or [tf.zeros(())])  # regularizers, in full
        parts = [
            each.weight * soft[each.output](y.answers[each.output], given[each.output], sample_weight=weight)
            for each in subjects
        ]
        total = (1 - alpha) * labels + alpha * (tf.add_n([tf.cast(part, tf.float32) for part in parts]) + own)
        if keras_models.is_keras_2(model):  # which tells of the labels' part alone
            mean = model.compiled_loss.metrics[0]
            mean.total.assign_add(tf.stop_gradient(total - labels) * tf.cast(tf.shape(parts_of(x))[0], tf.float32))
        return total

    def metrics(x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if not isinstance(y, Taught):
            return measure(x, y, y_pred, sample_weight)
        return measure(x, y.labels, y_pred, _weights(class_weight, y.labels))

    def parts_of(x: Any) -> Any:
        return tf.nest.flatten(x)[0]

    model.compute_loss, model.compute_metrics = loss, metrics
    try:
        yield
    finally:
        del model.compute_loss, model.compute_metrics
        model.train_function = None


def soft_loss(model: Any, subject: Subject, logits: bool, temperature: float) -> Callable[..., Any]:
    """Return the loss of one output for answers of the teacher, reduced as the module reduces the loss of its labels.

    Args:
        model: Whose Keras is used.
        subject: What is learnt.
        logits: Whether the answers are.
        temperature: Of classes and chances; values have none.
    """
    losses: Any = keras_models.library(model).losses
    formulas = {"classes": _between_classes, "chances": _between_chances}

    class Soft(losses.Loss):  # type: ignore[misc]  # Keras has no types
        """The loss for each example; the reduction, weights and masks are Keras's."""

        def call(self, answers: Any, given: Any) -> Any:
            import tensorflow as tf

            if subject.kind == "values":
                compiled = losses.get(subject.loss)
                return getattr(compiled, "call", compiled)(answers, given)
            said, learnt = tf.cast(answers, tf.float32), tf.cast(given, tf.float32)
            return temperature**2 * formulas[subject.kind](said, learnt, logits, subject.logits, temperature)

    as_compiled = {"reduction": subject.loss.reduction} if hasattr(subject.loss, "reduction") else {}
    return Soft(name="teacher", **as_compiled)


def _between_classes(said: Any, learnt: Any, said_logits: bool, learnt_logits: bool, temperature: float) -> Any:
    import tensorflow as tf

    teacher = tf.nn.log_softmax((said if said_logits else _log(said)) / temperature)
    student = tf.nn.log_softmax((learnt if learnt_logits else _log(learnt)) / temperature)
    return tf.reduce_sum(tf.exp(teacher) * (teacher - student), -1)


def _between_chances(said: Any, learnt: Any, said_logits: bool, learnt_logits: bool, temperature: float) -> Any:
    import tensorflow as tf

    teacher = (said if said_logits else _log(said) - _log(1 - said)) / temperature
    student = (learnt if learnt_logits else _log(learnt) - _log(1 - learnt)) / temperature
    yes = tf.sigmoid(teacher) * (tf.math.log_sigmoid(teacher) - tf.math.log_sigmoid(student))
    no = tf.sigmoid(-teacher) * (tf.math.log_sigmoid(-teacher) - tf.math.log_sigmoid(-student))
    return tf.reduce_mean(yes + no, -1)


def _log(probabilities: Any) -> Any:
    import tensorflow as tf

    return tf.math.log(tf.maximum(probabilities, SMALLEST))


def _weights(classes: Mapping[int, float] | None, labels: Any) -> Any:
    import tensorflow as tf

    if not classes:
        return None
    table = tf.constant([classes[number] for number in range(len(classes))], tf.float32)
    return tf.gather(table, tf.cast(tf.reshape(labels, [-1]), tf.int32))
