"""The light architectures of ``keras.applications``, by the names that people give them: ``MobileNetV2 0.35``."""

from collections.abc import Sequence
from dataclasses import dataclass

from tfopt.errors import ComponentError, nearest

NARROWEST, WIDEST = 0.05, 4.0


@dataclass(frozen=True)
class Family:
    """What is known of an architecture without building it.

    Attributes:
        least: The shortest side of an image that it takes.
        widths: Whether it has a width multiplier, ``alpha``.
        options: What its function is given besides, as it is written in Python.
        scales: Whether it scales pixels itself, from 0 to 255; others take -1 to 1.
    """

    least: int = 32
    widths: bool = False
    options: str = ""
    scales: bool = False


OUTSIDE = "include_preprocessing=False"  # no layers in it that the steps after training would have to know
FAMILIES: dict[str, Family] = {
    "MobileNet": Family(widths=True),
    "MobileNetV2": Family(widths=True),
    "MobileNetV3Small": Family(widths=True, options=OUTSIDE),
    "MobileNetV3Large": Family(widths=True, options=OUTSIDE),
    "EfficientNetB0": Family(scales=True),
    "EfficientNetB1": Family(scales=True),
    "EfficientNetB2": Family(scales=True),
    "EfficientNetB3": Family(scales=True),
    "EfficientNetV2B0": Family(options=OUTSIDE),
    "EfficientNetV2B1": Family(options=OUTSIDE),
    "EfficientNetV2B2": Family(options=OUTSIDE),
    "EfficientNetV2B3": Family(options=OUTSIDE),
    "EfficientNetV2S": Family(options=OUTSIDE),
    "NASNetMobile": Family(),
    "DenseNet121": Family(),
    "ResNet50": Family(),
    "ResNet50V2": Family(),
    "Xception": Family(least=71),
    "InceptionV3": Family(least=75),
}


@dataclass(frozen=True)
class Backbone:
    """One architecture at one width.

    Attributes:
        builder: The function of ``keras.applications``.
        alpha: The width multiplier; 1 where it has none.
    """

    builder: str
    alpha: float = 1.0

    def __str__(self) -> str:
        """Name it as it is read."""
        return self.builder if self.alpha == 1 else f"{self.builder} {self.alpha:g}"

    @property
    def family(self) -> Family:
        """What is known of the architecture."""
        return FAMILIES[self.builder]

    @property
    def options(self) -> list[str]:
        """What its function is given, as it is written in Python: ``alpha=0.35``."""
        given = [f"alpha={self.alpha:g}"] if self.alpha != 1 else []
        return [*given, *filter(None, [self.family.options])]


def read_backbones(texts: Sequence[str]) -> list[Backbone]:
    """Read names, each once, in their order.

    >>> list(map(str, read_backbones(["MobileNetV2 0.35", "ResNet50", "MobileNetV2 1.0", "MobileNetV2"])))
    ['MobileNetV2 0.35', 'ResNet50', 'MobileNetV2']

    Raises:
        ComponentError: When there is none, or one is not known (the nearest names are offered).
    """
    if not texts:
        raise ComponentError("no backbones", "at least one name", f"known: {', '.join(FAMILIES)}")
    return list(dict.fromkeys(_read(text) for text in texts))


def _read(text: str) -> Backbone:
    builder, *width = text.split() or [text]
    if builder not in FAMILIES:
        raise ComponentError(
            f"backbone {text!r}", "a light architecture of keras.applications", nearest(builder, FAMILIES)
        )
    if not width:
        return Backbone(builder)
    if not FAMILIES[builder].widths:
        wide = ", ".join(name for name, family in FAMILIES.items() if family.widths)
        raise ComponentError(f"backbone {text!r}", f"{builder} alone: of these only {wide} have a width", builder)
    try:
        alpha = float(width[0]) if len(width) == 1 else 0.0
    except ValueError:
        alpha = 0.0
    if not NARROWEST <= alpha <= WIDEST:
        raise ComponentError(
            f"backbone {text!r}",
            f"one width after the name, from {NARROWEST:g} to {WIDEST:g}",
            f"write for example {builder} 0.5",
        )
    return Backbone(builder, alpha)
