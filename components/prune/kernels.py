"""Find the kernels of a model that are pruned, and the reasons why others are not."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfopt import keras_models
from tfopt.components.prune.parameters import Pattern
from tfopt.components.prune.patterns import as_matrix
from tfopt.errors import ComponentError
from tfopt.keras_models.kernels import Kernel, check_patterns, kernels_of, matches
from tfopt.keras_models.weight_constraints import is_clustered, is_sparse

NAMES = ("kernel", "recurrent_kernel", "pointwise_kernel")
TRANSPOSED = ("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")


def find_kernels(model: Any, pattern: Pattern, names: Sequence[str]) -> list[Kernel]:
    """Return every kernel of the model once, nested layers included.

    ``names`` are those of the layers to prune, with ``*`` and ``?``; all when empty.

    Raises:
        ComponentError: If there is none to prune, a name matches no layer, or a named layer does not fit the pattern.
    """
    toolkit = keras_models.is_keras_2(model)
    kernels = [replace(kernel, left=_reason(kernel, pattern, names, toolkit)) for kernel in kernels_of(model, NAMES)]
    check_patterns(names, kernels)
    for name in names:
        refused = next((kernel for kernel in kernels if kernel.left and matches(kernel.path, [name])), None)
        if refused and "*" not in name:
            received = f"layer {refused.path!r}: {refused.left}"
            fix = "leave the layer out, or choose pattern='magnitude', which fits every kernel"
            raise ComponentError(received, f"a layer that pattern={pattern.name!r} fits", fix)
    if all(kernel.left for kernel in kernels):
        reasons = "; ".join(f"{kernel.path}: {kernel.left}" for kernel in kernels[:3]) or "no layer has a kernel"
        received = f"model {model.name}: nothing to prune ({reasons})"
        fix = "choose pattern='magnitude', which fits every kernel" if kernels else "give a model with trainable layers"
        raise ComponentError(received, f"a layer that pattern={pattern.name!r} fits", fix)
    return kernels


def check_not_shrunk(kernels: Sequence[Kernel]) -> None:
    """Raise ComponentError if the weights are pruned or clustered already, even without a model card."""
    for is_shrunk, description in (
        (is_sparse, "with many weights that are zero already"),
        (is_clustered, "with shared weights"),
    ):
        candidates = [kernel for kernel in kernels if not kernel.left]
        if candidates and all(is_shrunk(kernel.values) for kernel in candidates):
            names = ", ".join(kernel.path for kernel in candidates[:5])
            expected = "a model that was neither pruned nor clustered: its zeros and shared weights would be lost"
            raise ComponentError(f"{names}: kernels {description}", expected, "give the model from before that")


def input_axis(kernel: Kernel) -> int:
    """Return the axis of the input channels: weights along it are multiplied and summed into one output value."""
    layer, rank = kernel.layer, len(kernel.variable.shape)
    if type(layer).__name__ in TRANSPOSED:
        return rank - 1
    if type(layer).__name__ == "EinsumDense":
        terms, output = layer.equation.replace(" ", "").split("->")
        summed = [axis for axis, letter in enumerate(terms.split(",")[1]) if letter not in output]
        return summed[-1] if summed else rank - 2
    return rank - 2


def _reason(kernel: Kernel, pattern: Pattern, names: Sequence[str], toolkit: bool) -> str | None:
    layer, shape = kernel.layer, tuple(kernel.variable.shape)
    if names and not matches(kernel.path, names):
        return "not one of the selected layers"
    n, m = pattern.ratio
    if pattern.name == "n_m" and type(layer).__name__ in TRANSPOSED:
        return "a transposed convolution, for which no runtime has sparse groups"
    if pattern.name == "n_m" and (inputs := shape[input_axis(kernel)]) % m:
        return f"{inputs} input channels are not divisible by {m}, of {n}:{m}"
    if pattern.name == "n_m" and toolkit and len(shape) not in (2, 4):
        return f"a kernel of {len(shape)} dimensions, for which the toolkit for Keras 2 has no groups"
    if pattern.name == "block" and len(shape if toolkit else as_matrix(shape)) != 2:
        matrices = "Dense" if toolkit else "Dense or a 1x1 convolution"
        return f"a kernel of {'x'.join(map(str, shape))}, and blocks need a matrix ({matrices})"
    return None
