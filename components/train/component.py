from tfopt.artifacts import Anomalies, Examples, KerasModel, Model, PythonModule, TrainingPlan
from tfopt.component import Group, Input, Output, component
from tfopt.components.train.anomalies import check_anomalies
from tfopt.components.train.parameters import Settings, apply_plan
from tfopt.training import user_module


@component(image="tf", purpose="training", cpu=4, memory="8Gi", model_signature=True)
def train(
    examples: Input[Examples],
    module: Input[PythonModule],
    trained: Output[KerasModel],
    plan: Input[TrainingPlan] | None = None,
    teacher: Input[Model] | None = None,
    start: Input[KerasModel] | None = None,
    anomalies: Input[Anomalies] | None = None,
    *,
    settings: Group[Settings],
) -> None:
    """Train the Keras model of the user's module, and save it with its preprocessing inside.

    The module is one Python file with ``build_model()``, which returns a compiled Keras 3 or ``tf_keras`` model; its
    inputs are named like features of the examples. It may also have ``preprocess(features)``: it gets every feature
    except the label as a symbolic Keras tensor, by name, and returns the model's inputs, by name. The preprocessing
    becomes part of the saved model, so that training and serving cannot differ; the saved model takes raw features.

    The model is trained on the split ``train`` and validated on ``eval``. The weights of the epoch with the lowest
    validation loss are saved, with ``history.json`` and ``logs/`` for TensorBoard. The same seed, data, versions and
    machine give the same weights.

    With a ``teacher``, for example a large model that this one will replace, the model is trained by distillation: on
    the labels and on the teacher's outputs (docs/training.md).

    With a ``start``, for example the model of the last run, training begins with its weights (warm start).

    With ``checkpoints``, a training that was killed is resumed when the step runs again, and gives the same weights as
    without the interruption (docs/training.md).

    Args:
        examples: With the splits ``train`` and ``eval``.
        module: The Python file with ``build_model`` and optionally ``preprocess``.
        trained: The model as Keras file and SavedModel; their outputs were compared on the eval split.
        plan: The output of `profile_training`. Its settings are used for parameters that have their default. If it
            was measured on another machine or TensorFlow, the differences are in a warning and the model card.
        teacher: A model in any format that takes features of the examples. Its outputs are matched with the module's
            by name, or directly if both have one output.
        start: A model of the same layers, saved by `train`, whose weights are the initial ones. The state of
            ``preprocess`` is the module's, and the optimizer starts without state.
        anomalies: The output of TFX's ExampleValidator or DistributionValidator for these examples. If it contains
            anomalies, the step fails without training.
        settings: How the model is trained.

    Raises:
        ComponentError: If the module raises (its traceback is shown), if its model and the examples do not fit, if the
            loss is not finite, or if the start or the teacher learned other numbers for the examples' class names.

    Reference:
        ``docs/adr/0004-preprocessing-is-part-of-the-model.md``, ``docs/adr/0019-distillation.md``.
    """
    if anomalies:
        check_anomalies(anomalies)
    resolved, planned = apply_plan(plan, settings, train.parameters)
    resolved.check(has_teacher=teacher is not None)
    for split in ("train", "eval"):
        examples.split(split)
    user_module.check_syntax(module.path)
    from tfopt.components.train.train_model import train_module  # imports TensorFlow
    from tfopt.components.train.warm_start import find_changes, load_last_model

    start = start or load_last_model(examples, settings)
    changes = find_changes(start, examples, module.path, teacher, settings) if start else []
    train_module(examples, module.path, trained, resolved, teacher, start, changes)
    trained.metadata |= planned
