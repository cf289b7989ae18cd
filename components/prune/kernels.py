"""Which weights of a model are pruned: the kernels of its layers, and why some are left as they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfopt import keras_models
from tfopt.components.prune.pattern import Pattern
from tfopt.components.prune.patterns import as_matrix
from tfopt.errors import ComponentError
from tfopt.keras_models.kernels import Kernel, check_patterns, kernels_of, matches
from tfopt.keras_models.weight_constraints import is_clustered, is_sparse

NAMES = ("kernel", "recurrent_kernel", "pointwise_kernel")
TRANSPOSED = ("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")


@dataclass(frozen=True)
class Prunable(Kernel):
    """A kernel, and the axis of its input channels."""

    axis: int = 0


def find_kernels(model: Any, pattern: Pattern, chosen: Sequence[str]) -> list[Prunable]:
    """Return every kernel of the model, nested layers included, each once.

    Args:
        model: A Keras model.
        pattern: What the zeros should look like.
        chosen: Names of the layers to prune, ``*`` and ``?`` stand for other letters; all when empty.

    Raises:
        ComponentError: When there is none to prune, a name fits no layer, or a layer named here cannot be pruned so.
    """
    toolkit = keras_models.is_keras_2(model)
    found = [_prunable(kernel, pattern, chosen, toolkit) for kernel in kernels_of(model, NAMES)]
    check_patterns(chosen, found)
    for wanted in chosen:
        refused = next((kernel for kernel in found if kernel.left and matches(kernel.path, [wanted])), None)
        if refused and "*" not in wanted:
            raise ComponentError(
                f"layer {refused.path!r}: {refused.left}",
                f"a layer that pattern={pattern.name!r} fits",
                "leave the layer out, or choose pattern='magnitude', which fits every kernel",
            )
    if all(kernel.left for kernel in found):
        why = "; ".join(f"{kernel.path}: {kernel.left}" for kernel in found[:3]) or "no layer has a kernel"
        raise ComponentError(
            f"model {model.name}: nothing to prune ({why})",
            f"a layer that pattern={pattern.name!r} fits",
            "choose pattern='magnitude', which fits every kernel" if found else "give a model with layers that learn",
        )
    return found


def check_untouched(kernels: Sequence[Kernel]) -> None:
    """Raise ComponentError when the weights say what no card does: that they were pruned or clustered before."""
    for done, seen in (
        (is_sparse, "many of whose weights are zero already"),
        (is_clustered, "that share their weights"),
    ):
        wanted = [kernel for kernel in kernels if not kernel.left]
        if wanted and all(done(kernel.values) for kernel in wanted):
            names = ", ".join(kernel.path for kernel in wanted[:5])
            raise ComponentError(
                f"{names}: kernels {seen}",
                "a model that was neither pruned nor clustered: its zeros and shared weights would not stay",
                "give the model from before that",
            )


def _prunable(kernel: Kernel, pattern: Pattern, chosen: Sequence[str], toolkit: bool) -> Prunable:
    shape = tuple(kernel.variable.shape)
    axis = _input_axis(kernel.layer, len(shape))
    named = not chosen or matches(kernel.path, chosen)
    left = _unfit(kernel.layer, shape, axis, pattern, toolkit) if named else "not among the layers chosen"
    return Prunable(kernel.layer, kernel.path, kernel.name, kernel.variable, left, axis)


def _unfit(layer: Any, shape: tuple[int, ...], axis: int, pattern: Pattern, toolkit: bool) -> str | None:
    n, m = pattern.ratio
    if pattern.name == "n_m" and type(layer).__name__ in TRANSPOSED:
        return "a transposed convolution, which no runtime has with sparse groups"
    if pattern.name == "n_m" and shape[axis] % m:
        return f"{shape[axis]} input channels are not divisible by {m}, of {n}:{m}"
    if pattern.name == "n_m" and toolkit and len(shape) not in (2, 4):
        return f"a kernel of {len(shape)} dimensions, of which the toolkit for Keras 2 prunes no groups"
    if pattern.name == "block" and len(shape if toolkit else as_matrix(shape)) != 2:
        matrices = "Dense" if toolkit else "Dense or a 1x1 convolution"
        return f"a kernel of {'x'.join(map(str, shape))}, and blocks need a matrix ({matrices})"
    return None


def _input_axis(layer: Any, rank: int) -> int:
    """Of the weights that are multiplied and summed up into one value, the axis that lies closest together."""
    if type(layer).__name__ in TRANSPOSED:
        return rank - 1
    if type(layer).__name__ == "EinsumDense":
        terms, output = layer.equation.replace(" ", "").split("->")
        summed = [place for place, letter in enumerate(terms.split(",")[1]) if letter not in output]
        return summed[-1] if summed else rank - 2
    return rank - 2
