"""Parameters of `train`, checks of their combinations, and values for them from a training plan."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from tfopt.artifacts import TrainingPlan
from tfopt.declaration.parameters import Between, Parameter, Reads
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.measurement.machine_fingerprint import describe_differences, fingerprint
from tfopt.model_store.warm_start import Destination
from tfopt.reports import report_schema
from tfopt.reports.training_plan import PlannedSettings
from tfopt.training.compute.distribution import ONE, check_distribution, check_model_parallel
from tfopt.training.datasets.input_settings import InputSettings
from tfopt.value_types import JsonObject

BALANCED = "balanced"
TEMPERATURE, ALPHA = 4.0, 0.7  # defaults of distillation
# settings that do not influence the weights of a training
WITHOUT_EFFECT = (
    "model_parallel",
    "batch_search",
    "checkpoints",
    "checkpoint_s",
    "min_change",
    "destination",
    "warm_start",
)

log = logging.getLogger(__name__)


def read_class_weights(text: str) -> dict[int, float] | None:
    """Parse class weights; return None for ``balanced``.

    Raises:
        ComponentError: If the text is neither ``balanced`` nor a list of weights.

    >>> read_class_weights("0=1,3=2.5")
    {0: 1.0, 3: 2.5}
    """
    if text == BALANCED:
        return None
    weights: dict[int, float] = {}
    for part in text.split(","):
        number, _, weight = part.partition("=")
        try:
            weights[int(number)] = float(weight)
        except ValueError:
            weights[-1] = 0.0
    if not all(number >= 0 and 0 < weight < float("inf") for number, weight in weights.items()):
        fix = "write for example 0=1,3=2.5; a class that is not named has weight 1"
        raise ComponentError(f"class weights {text!r}", f"{BALANCED}, or CLASS=WEIGHT,… with weights above 0", fix)
    return weights


@dataclass(frozen=True)
class OptimizationSettings:
    """Settings of the optimization: its length, batches, precision and devices.

    Attributes:
        label: The label feature. Every output of the model that has a loss is trained on it.
        epochs: Maximum number of passes over the split.
        batch_size: Examples per step, on each device. When 0: a size that fits in memory, by ``batch_search``.
        batch_search: With ``batch_size=0``: the largest size that fits, or the smallest of those with the shortest time
            per example.
        patience: Stop after this many epochs without a lower validation loss.
        seed: Seed of the initial weights, the order of the examples, and the random numbers of the module.
        precision: Precision of the layers during training; the model is saved in float32. ``auto`` uses 16 bits if the
            device supports them and a few steps are measured to be faster; ``module`` keeps the module's setting.
        jit_compile: Compile the steps with XLA. ``clusters`` lets TensorFlow choose the parts; ``auto`` uses what is
            faster in a few steps (never XLA with ``deterministic``).
        deterministic: Make ops add up in the same order each time, so that the same seed gives the same weights.
        gradient_accumulation: Number of batches whose gradients are averaged for one update (Keras 3).
        rematerialize: Compute activations again in the backward pass instead of storing them: less memory, more time,
            and the same weights except for rounding (Keras 3; docs/training.md).
        distribution: The devices that train together: ``mirrored`` is all GPUs of this machine, ``multi_worker`` the
            machines of the cluster in TF_CONFIG; ``parameter_server`` and ``tpu`` were never run (docs/training.md).
        model_parallel: The number of devices that the layers of one model are divided among, by their measured time and
            memory, for a model that one device has no memory for (docs/training.md). When 1: not divided.
        learning_rate_scaling: Factor of the learning rate for R devices: R, its square root, or 1.
        class_weights: Weight of an example of each class in the loss: ``CLASS=WEIGHT,…``, or ``balanced`` for the same
            total weight of each class. When not given: 1.
    """

    label: str = "label"
    epochs: Annotated[int, Between(1, None)] = 20
    batch_size: Annotated[int, Between(0, None)] = 64
    batch_search: Literal["largest", "fastest"] = "largest"
    patience: Annotated[int, Between(0, None)] = 5
    seed: int = 0
    precision: Literal["module", "float32", "mixed_float16", "mixed_bfloat16", "auto"] = "module"
    jit_compile: Literal["module", "on", "off", "clusters", "auto"] = "module"
    deterministic: bool = True
    gradient_accumulation: Annotated[int, Between(1, None)] = 1
    rematerialize: bool = False
    distribution: Literal["one", "mirrored", "multi_worker", "parameter_server", "tpu"] = "one"
    model_parallel: Annotated[int, Between(1, None)] = 1
    learning_rate_scaling: Literal["linear", "sqrt", "off"] = "linear"
    class_weights: Annotated[str, Reads(read_class_weights, "0=1,1=2.5")] | None = None


@dataclass(frozen=True)
class Settings(InputSettings, OptimizationSettings):  # the fields of the last base come first
    """Settings of a training: optimization, input pipeline, warm start, checkpoints and distillation.

    Attributes:
        gpu_memory_mb: Limit of the memory of each GPU. When 0: allocated on demand.
        destination: The folder of pushed versions (see `push_model`): without a ``start``, training starts from the
            Keras model behind the newest version, or from initial weights if nothing was pushed yet.
        warm_start: Start from the newest version in ``destination``. When off, ``destination`` has no effect.
        checkpoints: A folder that outlives the step (a mounted volume, or an address such as ``gs://BUCKET/FOLDER``),
            where the whole state is saved until the model is written. When not given: no checkpoints. Only a training
            with the same examples, module and parameters is resumed from it.
        checkpoint_s: Seconds between two checkpoints within an epoch. There is also one after each epoch.
        temperature: Divisor of the logits of teacher and student before they are compared: the higher, the more the
            classes count that the teacher considers unlikely. Outputs that are not probabilities have none.
        alpha: Fraction of the teacher in the loss; the rest is the labels'. The validation uses only the labels.
        min_change: With a start: pass it through without training if nothing about the examples, nor its loss on them,
            changed by more than this fraction. When 0: always train.
    """

    gpu_memory_mb: Annotated[int, Between(0, None)] = 0
    destination: Destination | None = None
    warm_start: bool = True
    checkpoints: str | None = None
    checkpoint_s: Annotated[float, Between(0, None)] = 600
    temperature: Annotated[float, Between(1, 100)] = TEMPERATURE
    alpha: Annotated[float, Between(0, 1)] = ALPHA
    min_change: Annotated[float, Between(0, 1)] = 0.0

    def check(self, has_teacher: bool = False) -> None:
        """Raise ComponentError if two settings exclude each other, or the machine lacks the devices."""
        if self.deterministic and self.jit_compile == "on":
            received = "jit_compile=on with deterministic=True"
            fix = "pass deterministic=False (--no-deterministic), or leave jit_compile out"
            raise ComponentError(received, "one of them: XLA does not guarantee the same sums each time", fix)
        if self.checkpoints and "auto" in (self.precision, self.jit_compile):
            raise ComponentError(
                f"checkpoints with precision={self.precision} and jit_compile={self.jit_compile}",
                "fixed values: a new measurement may choose others, and a killed training could not be resumed",
                "train once with auto, and pass the values that the model card names",
            )
        if self.checkpoints and not self.batch_size:
            received = "checkpoints with batch_size=0"
            expected = "a fixed value: a new search may choose another, and a killed training could not be resumed"
            raise ComponentError(received, expected, "train once with 0, and pass the value that the log names")
        if self.batch_size and self.batch_search != "largest":
            received = f"batch_search={self.batch_search} with batch_size={self.batch_size}"
            raise ComponentError(received, "no size, which the search finds", "pass batch_size=0, or leave it out")
        if not has_teacher and (self.temperature, self.alpha) != (TEMPERATURE, ALPHA):
            received = f"temperature={self.temperature:g} and alpha={self.alpha:g} without a teacher"
            raise ComponentError(received, "a teacher for the distillation", "pass teacher=PATH, or leave both out")
        self._check_devices(has_teacher)

    def _check_devices(self, has_teacher: bool) -> None:
        check_distribution(self.distribution)
        check_model_parallel(self.model_parallel)
        unknown = "auto" in (self.precision, self.jit_compile) or not self.batch_size
        undivided = {
            f"distribution={self.distribution}": self.distribution != ONE,
            "rematerialize": self.rematerialize,
            f"jit_compile={self.jit_compile}": self.jit_compile not in ("module", "off"),
            "auto": unknown,
        }
        used = [name for name, is_used in undivided.items() if is_used]
        if self.model_parallel > 1 and used:
            received = f"model_parallel={self.model_parallel} with {', '.join(used)}"
            fix = "name batch_size and precision, leave the others out, or leave model_parallel out"
            raise ComponentError(received, "the layers on one device for these", fix)
        single_device = {
            "checkpoints": bool(self.checkpoints),
            "gradient_accumulation": self.gradient_accumulation > 1,
            "rematerialize": self.rematerialize,
            "a teacher": has_teacher,
            "min_change": self.min_change > 0,
            "auto": unknown,
        }
        used = [name for name, is_used in single_device.items() if is_used]
        if self.distribution != ONE and used:
            received = f"distribution={self.distribution} with {', '.join(used)}"
            fix = "name batch_size, precision and jit_compile, leave the others out, or pass distribution=one"
            raise ComponentError(received, "one device for these", fix)

    def identity(self) -> dict[str, str]:
        """Return the settings that influence the weights, as text."""
        return {name: str(value) for name, value in asdict(self).items() if name not in WITHOUT_EFFECT}


def apply_plan(
    plan: TrainingPlan | None, settings: Settings, declared: Mapping[str, Parameter]
) -> tuple[Settings, JsonObject]:
    """Return the passed settings with the plan's values where they have their default, and facts for the model card.

    The facts are the settings taken from the plan (``planned``), and the differences between this machine and the one
    where the plan was measured (``planned_elsewhere``); these only cause a warning. Raise ComponentError if the plan is
    damaged, has another version, or contains an unknown setting or an invalid value.
    """
    if plan is None:
        return settings, {}
    planned: dict[str, Any] = {}
    passed = asdict(settings)
    report = report_schema.load(PlannedSettings, plan.path / plan.file)
    for name, value in report.settings.items():
        if name not in passed:
            raise ComponentError(f"plan {plan.uri}: a setting {name}", "parameters of train", nearest(name, passed))
        declared[name].check(value, "plan")
        if passed[name] != declared[name].default and passed[name] != value:
            log.warning("the plan has %s=%s, but %s was passed and is used", name, value, passed[name])
        else:
            planned[name] = value
    if planned:
        log.info("from the plan: %s", ", ".join(f"{name}={value}" for name, value in planned.items()))
    differences = ["it does not name the machine"]
    if report.environment:
        differences = describe_differences(report.environment, fingerprint())
    if differences:
        log.warning(
            "the plan may not fit this machine: %s; measure again with profile_training", "; ".join(differences)
        )
    return replace(settings, **planned), {"planned": planned, "planned_elsewhere": differences}
