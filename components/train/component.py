"""The door of `train`: what it promises, and what it refuses in the first second."""

from typing import Annotated, Literal

from tfopt.artifacts import Anomalies, Examples, KerasModel, Model, PythonModule, TrainingPlan
from tfopt.component import Between, Input, Output, Reads, component
from tfopt.components.train.data_changes import changes
from tfopt.components.train.last import last_trained
from tfopt.components.train.planned import follow
from tfopt.components.train.settings import ALPHA, TEMPERATURE, Settings, read_class_weights


@component(image="tf", cpu=4, memory="8Gi")
def train(
    examples: Input[Examples],
    module: Input[PythonModule],
    trained: Output[KerasModel],
    plan: Input[TrainingPlan] | None = None,
    teacher: Input[Model] | None = None,
    start: Input[KerasModel] | None = None,
    anomalies: Input[Anomalies] | None = None,
    *,
    label: str = "label",
    epochs: Annotated[int, Between(1, None)] = 20,
    batch_size: Annotated[int, Between(0, None)] = 64,
    patience: Annotated[int, Between(0, None)] = 5,
    seed: int = 0,
    precision: Literal["module", "float32", "mixed_float16", "mixed_bfloat16", "auto"] = "module",
    jit_compile: Literal["module", "on", "off", "clusters", "auto"] = "module",
    deterministic: bool = True,
    gradient_accumulation: Annotated[int, Between(1, None)] = 1,
    rematerialize: bool = False,
    distribution: Literal["one", "mirrored", "multi_worker", "parameter_server", "tpu"] = "one",
    learning_rate_scaling: Literal["linear", "sqrt", "off"] = "linear",
    class_weights: Annotated[str, Reads(read_class_weights, "0=1,1=2.5")] | None = None,
    cache: Literal["auto", "memory", "disk", "off"] = "auto",
    shuffle_buffer: Annotated[int, Between(0, None)] = 0,
    memory_mb: Annotated[int, Between(0, None)] = 0,
    threads: Annotated[int, Between(0, None)] = 0,
    prefetch: Annotated[int, Between(0, None)] = 2,
    gpu_memory_mb: Annotated[int, Between(0, None)] = 0,
    last: str | None = None,
    checkpoints: str | None = None,
    checkpoint_s: Annotated[float, Between(0, None)] = 600,
    temperature: Annotated[float, Between(1, 100)] = TEMPERATURE,
    alpha: Annotated[float, Between(0, 1)] = ALPHA,
    min_change: Annotated[float, Between(0, 1)] = 0.0,
) -> None:
    """Train the Keras model of the user's module, and save it with its preprocessing inside.

    The module is one Python file with ``build_model()``, which returns a compiled Keras 3 or ``tf_keras`` model; its
    inputs are named as features of the examples. It may have ``preprocess(features)`` too: given every feature but the
    label as a symbolic Keras tensor, by name, it returns the model's inputs, by name. What it does becomes part of the
    saved model, so that training and serving cannot disagree; the model then takes the raw features.

    The split ``train`` is learnt and ``eval`` validates. The weights of the epoch with the lowest validation loss are
    kept. Beside the model lie ``history.json`` and ``logs/`` for TensorBoard. The same seed, data, versions and machine
    give the same weights.

    With a ``teacher``, such as the large model that this one is to replace, each example is learnt from its label and
    from the teacher's answer to it (docs/training.md).

    With a ``start``, such as what the last run trained, learning begins with the weights of that.

    With ``checkpoints``, a training that was killed goes on when the step is run again, and gives the weights that it
    would have given (docs/training.md).

    Args:
        examples: With the splits ``train`` and ``eval``.
        module: The Python file with ``build_model`` and, if wanted, ``preprocess``.
        trained: The model: its Keras form and its SavedModel, compared with each other on the eval split.
        plan: What `profile_training` measured to be faster: it is followed in parameters that have their default. A
            warning, and the card, tell how the machine or TensorFlow differ from where it was measured.
        teacher: A model in any format that takes features of the examples. Its outputs are matched with the module's
            by name; where each has one, whatever it is called.
        start: A model of the same layers, as `train` saved it, whose weights are the first ones. What ``preprocess``
            knows is the module's, and the optimizer begins anew.
        anomalies: What TFX's ExampleValidator or DistributionValidator found in these examples. Where they found any,
            nothing is learnt and the step fails.
        label: The feature to learn. Every output of the model that has a loss learns it.
        epochs: Train at most so many times over the split.
        batch_size: How many examples a step learns from, on each device. When 0: the most that fit in memory.
        patience: Stop after this many epochs without a lower validation loss.
        seed: Draws the first weights, the order of the examples, and whatever the module draws.
        precision: What the layers compute in while they learn; they are saved in float32. ``auto`` takes 16 bits where
            the device has them and a few steps were measured to be faster; ``module`` is what the module says.
        jit_compile: Whether XLA compiles the steps; ``clusters`` lets TensorFlow choose the parts, and ``auto`` takes
            what is faster in a few steps (never while ``deterministic``).
        deterministic: Whether ops add up in the same order each time, so that the same seed gives the same weights.
        gradient_accumulation: How many batches are averaged for one update of the weights (Keras 3).
        rematerialize: Whether what the layers gave is computed again for the gradients, in the place of being kept:
            less memory for more time, and the same weights but for rounding (Keras 3; docs/training.md).
        distribution: Which devices learn together: ``mirrored`` is all GPUs of this machine, ``multi_worker`` the
            machines of the cluster in TF_CONFIG; ``parameter_server`` and ``tpu`` were never run (docs/training.md).
        learning_rate_scaling: What the learning rate is multiplied by when R devices learn: R, its root, or nothing.
        class_weights: How much the examples of a class count: ``CLASS=WEIGHT,…``, or ``balanced`` for the same from
            each class; all count 1 when not given.
        cache: Where the parsed examples stay after the first epoch; ``auto`` is in memory where they fit.
        shuffle_buffer: How many examples wait to be drawn. When 0: all where they fit in memory, else 20,000.
        memory_mb: How much memory the examples may take. When 0: a quarter of what is free.
        threads: How many threads read and parse. When 0: as many as there are cores.
        prefetch: How many batches wait ready while one is learnt.
        gpu_memory_mb: How much of each GPU's memory may be taken. When 0: as it is needed.
        last: The ``destination`` of `push_model` in earlier runs: without a start, learning begins with the model that
            is kept there, or anew where there is none yet.
        checkpoints: A folder that outlives the step (a mounted volume, or an address such as ``gs://BUCKET/FOLDER``),
            where the whole state is kept until the model is saved. Nothing is kept when not given. The same examples,
            module and parameters find their own state there again, and no other.
        checkpoint_s: How many seconds lie between two checkpoints within an epoch. There is one after each epoch too.
        temperature: What the logits of teacher and student are divided by before they are compared: the higher, the
            more the classes count that the teacher thinks unlikely. Values that are no chances have none.
        alpha: The teacher's part of the loss; the labels have the rest, and the validation is theirs alone.
        min_change: With a start: it is handed on untrained while nothing about the examples, nor its loss on them,
            changed by more than this part. When 0: it is always trained.

    Raises:
        ComponentError: When the module raises (its traceback is shown), when its model and the examples do not fit, or
            when the loss stops being a finite number.

    Reference:
        ``docs/adr/0004-preprocessing-is-part-of-the-model.md``, ``docs/adr/0019-distillation.md``.
    """
    from tfopt.components.train import anomalies as anomalous
    from tfopt.training import user_module

    if anomalies:
        anomalous.check(anomalies)
    start = start or last_trained(last)
    asked = Settings(
        label=label,
        epochs=epochs,
        batch_size=batch_size,
        patience=patience,
        seed=seed,
        precision=precision,
        jit_compile=jit_compile,
        deterministic=deterministic,
        gradient_accumulation=gradient_accumulation,
        rematerialize=rematerialize,
        distribution=distribution,
        learning_rate_scaling=learning_rate_scaling,
        class_weights=class_weights,
        cache=cache,
        shuffle_buffer=shuffle_buffer,
        memory_mb=memory_mb,
        threads=threads,
        prefetch=prefetch,
        gpu_memory_mb=gpu_memory_mb,
        checkpoints=checkpoints,
        checkpoint_s=checkpoint_s,
        temperature=temperature,
        alpha=alpha,
        min_change=min_change,
    )
    settings, planned = follow(plan, asked, train.parameters)
    settings.check(teacher is not None)
    for split in ("train", "eval"):
        examples.split(split)
    user_module.check_syntax(module.path)
    changed = changes(start, examples, module.path, teacher, asked) if start and min_change else ["asked for"]
    from tfopt.components.train.train_model import train_module

    train_module(examples, module.path, trained, settings, teacher, start, changed)
    trained.metadata |= planned
