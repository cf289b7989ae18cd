"""What `train` is told, and which of it does not go together."""

from dataclasses import asdict, dataclass

from tfopt.errors import ComponentError
from tfopt.training.distribution import ONE, check_distribution

BALANCED = "balanced"
TEMPERATURE, ALPHA = 4.0, 0.7  # of a teacher
ASIDE = ("checkpoints", "checkpoint_s", "min_change")  # of a training's weights these decide nothing


@dataclass(frozen=True)
class Settings:
    """The parameters of the component, as it describes them."""

    label: str
    epochs: int
    batch_size: int
    patience: int
    seed: int
    precision: str
    jit_compile: str
    deterministic: bool
    gradient_accumulation: int
    distribution: str
    learning_rate_scaling: str
    class_weights: str | None
    cache: str
    shuffle_buffer: int
    memory_mb: int
    threads: int
    prefetch: int
    gpu_memory_mb: int
    checkpoints: str | None
    checkpoint_s: float
    temperature: float = TEMPERATURE
    alpha: float = ALPHA
    min_change: float = 0.0
    rematerialize: bool = False

    def check(self, teacher: bool = False) -> None:
        """Refuse what can not be, before anything is read.

        Args:
            teacher: Whether there is one.

        Raises:
            ComponentError: When two parameters do not go together.
        """
        if self.deterministic and self.jit_compile == "on":
            raise ComponentError(
                "jit_compile=on with deterministic=True",
                "one of them: XLA does not promise the same sums each time",
                "pass deterministic=False (--no-deterministic), or leave jit_compile out",
            )
        if self.checkpoints and "auto" in (self.precision, self.jit_compile):
            raise ComponentError(
                f"checkpoints with precision={self.precision} and jit_compile={self.jit_compile}",
                "named ones: what is measured anew may be another, and a killed training could not go on",
                "train once with auto, and name what the model's card says it chose",
            )
        if self.checkpoints and not self.batch_size:
            raise ComponentError(
                "checkpoints with batch_size=0",
                "a named one: what fits anew may be another, and a killed training could not go on",
                "train once with 0, and pass what the log says it chose",
            )
        if not teacher and (self.temperature, self.alpha) != (TEMPERATURE, ALPHA):
            raise ComponentError(
                f"temperature={self.temperature:g} and alpha={self.alpha:g} without a teacher",
                "a teacher to learn from in that way",
                "pass teacher=PATH, or leave both out",
            )
        self._check_devices(teacher)

    def _check_devices(self, teacher: bool) -> None:
        """Refuse what several devices cannot do together, and devices that are not there."""
        check_distribution(self.distribution)
        refused = {
            "checkpoints": bool(self.checkpoints),
            "gradient_accumulation": self.gradient_accumulation > 1,
            "rematerialize": self.rematerialize,
            "a teacher": teacher,
            "min_change": self.min_change > 0,
            "auto": "auto" in (self.precision, self.jit_compile) or not self.batch_size,
        }
        unable = [name for name, asked in refused.items() if asked]
        if self.distribution != ONE and unable:
            raise ComponentError(
                f"distribution={self.distribution} with {', '.join(unable)}",
                "one device for these",
                "name batch_size, precision and jit_compile, leave the others out, or pass distribution=one",
            )

    def deciding(self) -> dict[str, str]:
        """Those that decide the weights, as text."""
        return {name: str(value) for name, value in asdict(self).items() if name not in ASIDE}


def read_class_weights(text: str) -> dict[int, float] | None:
    """Read weights of classes; None for those that make each class count as much as any other.

    Raises:
        ComponentError: When it is something else.

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
        raise ComponentError(
            f"class weights {text!r}",
            f"{BALANCED}, or CLASS=WEIGHT,… with weights above 0",
            "write for example 0=1,3=2.5; a class that is not named counts 1",
        )
    return weights
