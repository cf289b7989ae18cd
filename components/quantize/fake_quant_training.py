"""Keras 3: a model with tfopt's own fake quantization, from its first ranges to its last."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from tfopt.components.quantize.insert_fake_quant import rewrite
from tfopt.errors import ComponentError
from tfopt.keras_models.weight_constraints import Projection, add_projection, is_clustered, is_sparse


class Learner:
    """What is trained.

    Attributes:
        model: With fake quantization, not compiled.
    """

    def __init__(self, model: Any, keep_float: list[str], *, zeros: bool, clusters: bool) -> None:
        """Take over a model's layers.

        Args:
            model: A Keras 3 graph model.
            keep_float: Names of layers that are left in floats.
            zeros: Keep the zeros of kernels that were pruned.
            clusters: Keep the shared weights of kernels that were clustered.

        Raises:
            ComponentError: When no layer has an 8-bit form.
        """
        self._made = rewrite(model, keep_float, one_scale=clusters)
        self.model = self._made.model
        if not self._made.kernels:
            why = "; ".join(f"{name}: {reason}" for name, reason in list(self._made.left.items())[:5])
            raise ComponentError(
                f"model {model.name}: nothing to quantize ({why or 'no layer has a kernel'})",
                "a Dense, Conv1D, Conv2D, DepthwiseConv2D or SeparableConv2D layer",
                "leave this step out",
            )
        self._kept: dict[str, list[str]] = {"zeros": [], "clusters": []}
        for layer in self._made.kernels:
            self._keep(layer, zeros, clusters)

    def observe(self, batches: Iterable[Any]) -> None:
        """Set the ranges to what passes through the model, which computes exactly meanwhile."""
        self._set_observing(True)
        for inputs, _ in batches:
            self.model(inputs, training=False)
        self._set_observing(False)

    def finish(self) -> None:
        """Set the limits of the kernels to their last values: training changed those after it had measured them."""
        for layer in self._made.kernels:
            layer.measure()

    def report(self) -> dict[str, Any]:
        """What is quantized, what is not and why, and what was kept."""
        kernels = [_facts(layer) for layer in self._made.kernels]
        left = self._made.left
        summary = f"{len(kernels)} kernels and {len(self._made.ranges)} activations in 8 bits"
        summary += f", {len(left)} layers in floats" if left else ""
        return {"summary": summary, "left": left, "kept": self._kept, "kernels": kernels}

    def _keep(self, layer: Any, zeros: bool, clusters: bool) -> None:
        kernel = layer.kernel.numpy()
        zeros, clusters = zeros and is_sparse(kernel), clusters and is_clustered(kernel)
        if zeros or clusters:
            add_projection(layer.kernel, Projection(kernel, zeros=zeros, clusters=clusters))
        if zeros:
            self._kept["zeros"].append(layer.layer.name)
        if clusters:
            self._kept["clusters"].append(layer.layer.name)

    def _set_observing(self, observing: bool) -> None:
        both: list[Any] = [*self._made.kernels, *self._made.ranges]
        for layer in both:
            layer.observing = observing


def _facts(layer: Any) -> dict[str, Any]:
    kernel, rounded = layer.kernel.numpy(), np.asarray(layer.rounded())
    return {
        "layer": layer.layer.name,
        "sparsity": float((kernel == 0).mean()),
        "values": len(np.unique(kernel)),
        "rounding": float(np.abs(rounded - kernel).max() / max(float(np.abs(kernel).max()), 1e-12)),
    }
