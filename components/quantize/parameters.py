from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tfopt.component import Between, Names, Reads
from tfopt.errors import ComponentError
from tfopt.training.fine_tuning_inputs import FineTuningSettings, TeacherSettings

FLOAT = "float32"
KINDS = ("int4", "int8", FLOAT)  # of the weights of a layer


def parse_recipe(recipe: Sequence[str]) -> list[tuple[str, str]]:
    """Parse rules such as ``dense*=int4``; raise ComponentError for other texts.

    >>> parse_recipe(["*=int4", "logits=float32"])
    [('*', 'int4'), ('logits', 'float32')]
    """
    rules = [(pattern, kind) for pattern, _, kind in (rule.rpartition("=") for rule in recipe)]
    for rule, (pattern, kind) in zip(recipe, rules, strict=True):
        if not pattern or kind not in KINDS:
            expected = f"NAME=KIND, with the name of a layer and one of {', '.join(KINDS)}"
            raise ComponentError(f"recipe {rule!r}", expected, "write for example 'dense_1=int4'")
    return rules


@dataclass(frozen=True)
class QuantizationSettings:
    """Parameters of the quantization.

    Attributes:
        keep_float: Names of layers that stay in floats.
        recipe: Kinds for individual layers, as "NAME=KIND": NAME is the name of a layer, in which * matches any
            letters; KIND is int4 or int8 (of the weights; activations have 8 bits), or float32. The last match applies.
        weight_bits: Mean number of bits of a weight in the quantized layers. Below 8, the layers that the recipe does
            not name have int4 where that adds the least loss for each weight, by ``sensitivities``, and else int8.
        learned_scales: Train the scale of each channel's weights (LSQ) instead of that of its largest weight. Not for
            kernels with shared weights.
        keep_zeros: Preserve the zeros of pruned kernels.
        keep_clusters: Preserve groups of weights that share a value.
    """

    keep_float: Annotated[tuple[str, ...], Names()] = ()
    recipe: Annotated[tuple[str, ...], Reads(parse_recipe, ("dense_1=int4",))] = ()
    weight_bits: Annotated[float, Between(4, 8)] = 8.0
    learned_scales: bool = False
    keep_zeros: bool = True
    keep_clusters: bool = True


@dataclass(frozen=True)
class Settings(TeacherSettings, FineTuningSettings, QuantizationSettings):  # the fields of the last base come first
    """Parameters of quantization-aware training.

    Attributes:
        calibration_count: Number of examples of ``train`` that set the ranges before training starts.
        seed: Seed of the order of the examples.
    """

    calibration_count: Annotated[int, Between(2, None)] = 512
    seed: int = 0
