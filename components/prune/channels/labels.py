"""Which channels live and die together: labels that travel with the tensors of a graph, and what is known of them.

Every channel that a layer makes gets a label. What only passes channels on passes their labels on; where two channels
meet in one place (a residual sum, a gate, a second call of the same layer) their labels are tied. All labels tied to
each other are one *bundle*, and a bundle is removed whole or stays. The same label may stand at many places of an axis:
after a Flatten every channel stands there once for each position.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tfopt.keras_models.layer_graph import Layer

Labels = NDArray[np.int64]
Kept = NDArray[np.bool_]  # by label
Role = Literal["makes", "bias", "reads", "filters", "scales", "follows"]


@dataclass(frozen=True)
class Channels:
    """The labels along one axis of a tensor; along its other axes nothing changes from channel to channel."""

    axis: int
    labels: Labels


@dataclass(frozen=True)
class Cut:
    """An axis of a weight that loses what its labels lose.

    Attributes:
        layer: Whose weight.
        weight: Its place in ``layer.weights``.
        axis: Not negative.
        labels: One for each index of the axis.
        role: ``makes`` these channels, adds their ``bias``, ``filters`` each by itself (a depthwise kernel), ``scales``
            them (a batch norm's gamma), ``follows`` them otherwise, or ``reads`` them.
    """

    layer: Layer
    weight: int
    axis: int
    labels: Labels
    role: Role


class NotFollowedError(Exception):
    """A layer's channels cannot be followed; what it says is the reason."""


class Book:
    """What is known of the channels of one model.

    Attributes:
        names: Of every layer, with the models it is in, by id.
        followed: The layers whose channels are understood, by id.
        cuts: By the layer's id, the weight and the axis.
        widths: Entries of layers' configurations that are as large as some channels are many: by the layer's id, the
            key and the place in it (None for a number).
        entries: What the models inside are given, by id: the channels of each of their inputs.
        uses: Each call's kernels: the layer, the weight, and how many times every number of it is multiplied; None
            where a size is open.
        reasons: Why labels may not go.
        abandoned: Why a layer is not followed in any of its calls, by id.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.names: dict[int, str] = {}
        self.followed: dict[int, Layer] = {}
        self.cuts: dict[tuple[int, int, int], Cut] = {}
        self.widths: dict[int, dict[tuple[str, int | None], Labels]] = {}
        self.entries: dict[int, list[Channels]] = {}
        self.uses: list[tuple[Layer, int, int | None]] = []
        self.reasons: dict[int, str] = {}
        self.abandoned: dict[int, str] = {}
        self._parents: list[int] = []

    def fresh(self, count: int) -> Labels:
        """Return so many new labels."""
        start = len(self._parents)
        self._parents.extend(range(start, start + count))
        return np.arange(start, start + count)

    def tie(self, one: Labels, other: Labels) -> None:
        """Let what stands at the same place live and die together.

        Raises:
            NotFollowedError: When they are not as many.
        """
        if len(one) != len(other):
            raise NotFollowedError(f"{len(one)} channels meet {len(other)}")
        for a, b in zip(one.tolist(), other.tolist(), strict=True):
            a, b = self._root(a), self._root(b)
            if a != b:
                self._parents[max(a, b)] = min(a, b)

    def freeze(self, labels: Labels, reason: str) -> None:
        """Say why these labels, and all that are or will be tied to them, stay."""
        for label in np.unique(labels).tolist():
            self.reasons.setdefault(label, reason)

    def roots(self) -> Labels:
        """Return the bundle of each label: the smallest label in it."""
        return np.array([self._root(label) for label in range(len(self._parents))], np.int64)

    def cut(self, layer: Layer, variable: Any, axis: int, labels: Labels, role: Role) -> Labels:
        """Note that an axis of a weight belongs to these labels, tied to those it had from an earlier call."""
        place = next(place for place, weight in enumerate(layer.weights) if weight is variable)
        axis %= len(variable.shape)
        if int(variable.shape[axis]) != len(labels):
            raise NotFollowedError(f"axis {axis} of {variable.name} is not as long as its channels are many")
        known = self.cuts.setdefault((id(layer), place, axis), Cut(layer, place, axis, labels, role))
        if known.labels is not labels:
            self.tie(known.labels, labels)
        return known.labels

    def made(self, layer: Layer, variable: Any, axis: int) -> Labels:
        """Return the labels of the channels a weight makes, the same for every call of its layer."""
        place = next(place for place, weight in enumerate(layer.weights) if weight is variable)
        known = self.cuts.get((id(layer), place, axis % len(variable.shape)))
        labels = known.labels if known else self.fresh(int(variable.shape[axis]))
        return self.cut(layer, variable, axis, labels, "makes")

    def use(self, layer: Layer, variable: Any, sizes: Sequence[int | None]) -> None:
        """Count the multiplications of a call: every number of the weight, at every position of these sizes."""
        place = next(place for place, weight in enumerate(layer.weights) if weight is variable)
        times = None if None in sizes else int(np.prod(np.array(sizes, np.int64), dtype=np.int64))
        self.uses.append((layer, place, times))

    def abandon(self, layer: Layer, reason: str) -> None:
        """Freeze whatever was noted of a layer, or of the layers of a model, and follow it no more."""
        self.followed.pop(id(layer), None)
        self.abandoned[id(layer)] = reason
        inside = f"{self.names[id(layer)]}/"
        for key, name in self.names.items():
            if key == id(layer) or name.startswith(inside):
                for labels in self._noted(key):
                    self.freeze(labels, reason)

    def _noted(self, key: int) -> list[Labels]:
        cuts = [cut.labels for cut in self.cuts.values() if id(cut.layer) == key]
        entries = [channels.labels for channels in self.entries.get(key, ())]
        return [*cuts, *entries, *self.widths.get(key, {}).values()]

    def _root(self, label: int) -> int:
        parents = self._parents
        while parents[label] != label:
            parents[label] = parents[parents[label]]
            label = parents[label]
        return label
