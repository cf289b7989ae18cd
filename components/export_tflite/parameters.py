import re
from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between
from tfopt.conversion.parameters import CalibratedConversion, Minimized
from tfopt.errors import ComponentError

ACTIVATION_BITS = {"int8": 8, "int16x8": 16}
CALIBRATED = tuple(ACTIVATION_BITS)
BY_LAYER = ("dynamic", "int4", "int8", "int16x8", "auto")  # precisions with a kind for each layer
LAYER_KINDS = ("float32", "float16", "int8", "int4", "int4x32", "int4x64", "int4x128", "int4x256")

Rule = tuple[str, str]  # a regular expression for the names of layers, and their kind


@dataclass(frozen=True, kw_only=True)
class TFLiteFormat:
    """Precision of a LiteRT file.

    Attributes:
        precision: Precision of weights and activations. auto is the smallest, or fastest, mix of int4, int8, float16
            and float32 weights that meets max_degradation.
        integer_io: Make the inputs and outputs integers as well, for devices without floats. Only for int8 and int16x8;
            TFX's own Evaluator does not quantize such inputs, so do not use it with that.
    """

    precision: Literal["float32", "float16", "dynamic", "int4", "int8", "int16x8", "auto"] = "float32"
    integer_io: bool = False


@dataclass(frozen=True, kw_only=True)
class TFLiteConversion(CalibratedConversion, TFLiteFormat):  # the fields of the last base come first
    """Conversion to LiteRT.

    Attributes:
        select_tf_ops: Allow ops that LiteRT lacks, which TensorFlow's Flex delegate runs. A file with such ops does not
            run where that delegate is not linked in. This machine is one of them, so the file is not verified.
        sparse: Store weights that are mostly zeros, as of a pruned model, by their nonzero values: a smaller file, no
            faster. For float32 and float16: LiteRT does not load such files of the other precisions.
        recipe: Kinds for individual layers, as "NAME=KIND": NAME is a regular expression for the name of the layer's
            output, KIND is float32, float16 (of the weights), int8, int4, or int4x32 (also x64, x128, x256: dense
            layers with a scale for each block of so many weights). The last match applies. For dynamic, int4, int8,
            int16x8 and auto.
        max_degradation: The largest share of held-out records that may change their class, or loss of correlation if
            there are no classes; accuracy on them cannot fall by more. If it is exceeded, the layers that add most
            error become int8, then float16, then float32, until it is met, and with precision=auto any number of them,
            else at most half in float; the figure of that form is optimistic. It is no bound for other records:
            `evaluate` states one. Needs examples.
        minimize: With precision=auto, what is least among the mixes that meet max_degradation: the bytes of the file
            (size), or the time of a call with one record and one thread on this machine (latency), which is measured
            for each layer and kind, and takes minutes. In a mix for latency the activations of a layer may have 8 bits,
            too, with calibrated ranges; with dynamic, only its weights.
    """

    select_tf_ops: bool = False
    sparse: bool = False
    recipe: tuple[str, ...] = ()
    max_degradation: Annotated[float, Between(0, 1)] | None = None
    minimize: Minimized = "size"

    @property
    def needs_inputs(self) -> bool:
        """True for integers, and with a limit of the degradation, as auto has."""
        return self.precision.startswith("int") or self.max_degradation is not None

    @property
    def allows_any_op(self) -> bool:
        """True with TensorFlow's Flex delegate."""
        return self.select_tf_ops

    @property
    def lacking(self) -> tuple[str, ...]:
        """LiteRT has no slices that add axes to tensors of several open sizes, no rolls, and little of int64."""
        return ("StridedSlice", "Roll", "Abs", "Sign")

    @property
    def activation_bits(self) -> int | None:
        """Bits of activations with ranges: in a mix for latency 8, as far as layers have integers; None for floats."""
        if self.precision == "auto" and self.minimize == "latency":
            return 8
        return ACTIVATION_BITS.get(self.precision)

    def rules(self) -> list[Rule]:
        """Parse the recipe.

        Raises:
            ComponentError: If a rule has another form, or a kind that the precision does not support.
        """
        rules = []
        kinds = [kind for kind in LAYER_KINDS if self.precision not in CALIBRATED or "x" not in kind]
        for rule in self.recipe:
            pattern, _, kind = rule.rpartition("=")
            try:
                re.compile(pattern)
                valid = bool(pattern) and kind in kinds and self.precision in BY_LAYER
            except re.error:
                valid = False
            if not valid:
                raise ComponentError(
                    f"recipe {rule!r} with precision={self.precision!r}",
                    f"NAME=KIND with a regular expression and one of {', '.join(kinds)}, and precision "
                    f"{', '.join(BY_LAYER[:-1])} or {BY_LAYER[-1]}",
                    "write for example 'dense_1=float32'",
                )
            rules.append((pattern, kind))
        return rules
