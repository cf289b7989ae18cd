"""Quantization-aware training of Keras 3 models with the layers of `tfopt.keras_models.fake_quantization`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.components.quantize.insert_fake_quant import rewrite
from tfopt.errors import ComponentError
from tfopt.keras_models.weight_constraints import Projection, add_projection, is_clustered, is_sparse
from tfopt.value_types import JsonObject


class Trainee:
    """A Keras 3 model with fake quantization, to be trained; ``model`` is not compiled."""

    def __init__(
        self,
        model: Any,
        keep_float: Sequence[str],
        bits: Mapping[str, int],
        *,
        zeros: bool,
        clusters: bool,
        learned: bool = False,
    ) -> None:
        """Insert fake quantization, and preserve zeros and shared weights. The layers become part of the new model.

        ``bits`` has those of the weights of some layers by name; the others have 8. With ``learned`` the scales of the
        weights are trained.

        Raises:
            ComponentError: If no layer has an 8-bit form.
        """
        self._rewritten = rewrite(model, keep_float, bits, one_scale=clusters, learned=learned)
        self.model = self._rewritten.model
        if not self._rewritten.kernels:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in list(self._rewritten.left.items())[:5])
            received = f"model {model.name}: nothing to quantize ({reasons or 'no layer has a kernel'})"
            expected = "a Dense, Conv1D, Conv2D, DepthwiseConv2D or SeparableConv2D layer"
            raise ComponentError(received, expected, "leave this step out")
        self._preserved: dict[str, list[str]] = {"zeros": [], "clusters": []}
        for layer in self._rewritten.kernels:
            kernel, name = layer.kernel.numpy(), layer.layer.name
            sparse, shared = zeros and is_sparse(kernel), clusters and is_clustered(kernel)
            if sparse or shared:
                add_projection(layer.kernel, Projection(kernel, zeros=sparse, clusters=shared))
            self._preserved["zeros"] += [name] * sparse
            self._preserved["clusters"] += [name] * shared

    def observe(self, batches: Iterable[Any]) -> None:
        """Set the ranges of activations to the minimum and maximum over the batches, without rounding."""
        self._set_observing(True)
        for inputs, _ in batches:
            self.model(inputs, training=False)
        self._set_observing(False)

    def finish(self) -> None:
        """Set the limits of the kernels from their final weights, which changed after the last measurement."""
        for layer in self._rewritten.kernels:
            layer.measure()

    def report(self) -> JsonObject:
        """Return the quantized kernels, the layers in floats with reasons, and the preserved zeros and clusters."""
        kernels = [_facts(layer) for layer in self._rewritten.kernels]
        left = self._rewritten.left
        in_four = sum(layer.bits == 4 for layer in self._rewritten.kernels)
        summary = f"{len(kernels)} kernels and {len(self._rewritten.ranges)} activations in 8 bits"
        summary += f", {in_four} of these kernels in 4 bits" if in_four else ""
        summary += f", {len(left)} layers in floats" if left else ""
        return {"summary": summary, "left": left, "kept": self._preserved, "kernels": kernels}

    def _set_observing(self, observing: bool) -> None:
        quantizers: list[Any] = [*self._rewritten.kernels, *self._rewritten.ranges]
        for layer in quantizers:
            layer.observing = observing


def _facts(layer: Any) -> JsonObject:
    kernel, rounded = layer.kernel.numpy(), np.asarray(layer.rounded())
    return {
        "layer": layer.layer.name,
        "bits": layer.bits,
        "weights": kernel.size,
        "sparsity": float((kernel == 0).mean()),
        "values": len(np.unique(kernel)),
        "rounding": float(np.abs(rounded - kernel).max() / max(float(np.abs(kernel).max()), 1e-12)),
    }
