"""The table of image classification backbones of ``keras.applications``: limits, options and costs.

``python benchmarks/backbones.py`` counts the costs again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

MIN_ALPHA, MAX_ALPHA = 0.05, 4.0
COUNTED_SIDE = 224  # height and width of the images for which operations are counted
NO_PREPROCESSING = "include_preprocessing=False"  # its layers are in the way of later optimizations


@dataclass(frozen=True)
class Cost:
    """The cost of a backbone without its head, for one image of 224x224x3."""

    parameters: int  # number of parameters
    mflops: float  # million floating-point operations
    light: bool = False  # True if `compare_backbones` measures the backbone by default


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """An architecture of ``keras.applications``."""

    min_side: int = 32  # smallest height and width of an image
    has_alpha: bool = False  # True if it has a width multiplier, ``alpha``
    options: str = ""  # further arguments of its function, as Python source
    scales_pixels: bool = False  # True if it expects pixels from 0 to 255 and scales them; the others expect -1 to 1
    # costs by width multiplier; empty if they were not counted
    costs: Mapping[float, Cost] = field(default_factory=dict)


ARCHITECTURES: dict[str, Architecture] = {
    "MobileNet": Architecture(
        has_alpha=True, costs={0.25: Cost(218_544, 85), 0.5: Cost(829_536, 306), 1.0: Cost(3_228_864, 1151)}
    ),
    "MobileNetV2": Architecture(
        has_alpha=True,
        costs={
            0.35: Cost(410_208, 125, light=True),
            0.5: Cost(706_224, 202, light=True),
            1.0: Cost(2_257_984, 619, light=True),
        },
    ),
    "MobileNetV3Small": Architecture(
        has_alpha=True, options=NO_PREPROCESSING, costs={1.0: Cost(939_120, 117, light=True)}
    ),
    "MobileNetV3Large": Architecture(
        has_alpha=True, options=NO_PREPROCESSING, costs={1.0: Cost(2_996_352, 447, light=True)}
    ),
    "EfficientNetB0": Architecture(scales_pixels=True, costs={1.0: Cost(4_049_570, 807, light=True)}),
    "EfficientNetB1": Architecture(scales_pixels=True, costs={1.0: Cost(6_575_238, 1189, light=True)}),
    "EfficientNetB2": Architecture(scales_pixels=True, costs={1.0: Cost(7_768_568, 1370, light=True)}),
    "EfficientNetB3": Architecture(scales_pixels=True),
    "EfficientNetV2B0": Architecture(options=NO_PREPROCESSING, costs={1.0: Cost(5_919_318, 1459, light=True)}),
    "EfficientNetV2B1": Architecture(options=NO_PREPROCESSING),
    "EfficientNetV2B2": Architecture(options=NO_PREPROCESSING, costs={1.0: Cost(8_769_380, 2371)}),
    "EfficientNetV2B3": Architecture(options=NO_PREPROCESSING),
    "EfficientNetV2S": Architecture(options=NO_PREPROCESSING),
    "NASNetMobile": Architecture(costs={1.0: Cost(4_269_716, 1155)}),
    "DenseNet121": Architecture(costs={1.0: Cost(7_037_504, 5716)}),
    "ResNet50": Architecture(costs={1.0: Cost(23_587_712, 7760, light=True)}),
    "ResNet50V2": Architecture(),
    "Xception": Architecture(min_side=71),
    "InceptionV3": Architecture(min_side=75),
}


@dataclass(frozen=True)
class Backbone:
    """An architecture with a width multiplier."""

    builder: str  # name of the function in ``keras.applications``
    alpha: float = 1.0  # width multiplier; 1 if the architecture has none

    def __str__(self) -> str:
        """Return the name: ``MobileNetV2 0.35``."""
        return self.builder if self.alpha == 1 else f"{self.builder} {self.alpha:g}"

    @property
    def architecture(self) -> Architecture:
        """Return the architecture's row of the table."""
        return ARCHITECTURES[self.builder]

    @property
    def options(self) -> list[str]:
        """Return further arguments of the function, as Python source: ``alpha=0.35``."""
        alpha = [f"alpha={self.alpha:g}"] if self.alpha != 1 else []
        return [*alpha, *filter(None, [self.architecture.options])]


# costs of all counted backbones, by name, those with the fewest operations first
COSTS: dict[str, Cost] = {
    str(Backbone(builder, alpha)): cost
    for builder, architecture in ARCHITECTURES.items()
    for alpha, cost in architecture.costs.items()
}
COSTS = dict(sorted(COSTS.items(), key=lambda item: item[1].mflops))
LIGHT_BACKBONES = tuple(name for name, cost in COSTS.items() if cost.light)


def read_backbones(texts: Sequence[str]) -> list[Backbone]:
    """Parse names of backbones, without duplicates, in their order.

    >>> list(map(str, read_backbones(["MobileNetV2 0.35", "ResNet50", "MobileNetV2 1.0", "MobileNetV2"])))
    ['MobileNetV2 0.35', 'ResNet50', 'MobileNetV2']

    Raises:
        ComponentError: If there is no name, or a name is unknown.
    """
    if not texts:
        raise ComponentError("no backbones", "at least one name", f"known: {', '.join(ARCHITECTURES)}")
    return list(dict.fromkeys(_read_backbone(text) for text in texts))


def _read_backbone(text: str) -> Backbone:
    builder, *widths = text.split() or [text]
    if builder not in ARCHITECTURES:
        received = f"backbone {text!r}"
        raise ComponentError(received, "a light architecture of keras.applications", nearest(builder, ARCHITECTURES))
    if not widths:
        return Backbone(builder)
    if not ARCHITECTURES[builder].has_alpha:
        names = ", ".join(name for name, architecture in ARCHITECTURES.items() if architecture.has_alpha)
        raise ComponentError(f"backbone {text!r}", f"no width: only {names} have one", builder)
    try:
        alpha = float(widths[0]) if len(widths) == 1 else 0.0
    except ValueError:
        alpha = 0.0
    if not MIN_ALPHA <= alpha <= MAX_ALPHA:
        expected = f"one width after the name, from {MIN_ALPHA:g} to {MAX_ALPHA:g}"
        raise ComponentError(f"backbone {text!r}", expected, f"write for example {builder} 0.5")
    return Backbone(builder, alpha)
