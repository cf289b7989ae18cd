"""Labels of channels, propagated through the graph of a model, and the weights that belong to them.

Every channel that a layer produces gets a label. Layers that pass channels through pass their labels through. Where two
channels meet at one position (a residual sum, a gate, a second call of the same layer), their labels are tied. All
labels that are tied to each other are one *bundle*; a bundle is removed entirely or remains. A label may occur several
times along an axis: after a Flatten, once for each position.

Reference:
    Bundles are the dependency groups of Fang et al., "DepGraph: Towards Any Structural Pruning", CVPR 2023, computed
    for single channels with a union-find structure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tfopt.keras_models.layer_graph import Layer

Labels = NDArray[np.int64]
Remaining = NDArray[np.bool_]  # shape [labels]: True for channels that remain
Role = Literal["makes", "bias", "reads", "filters", "scales", "follows"]


@dataclass(frozen=True)
class Channels:
    """The labels along one axis of a tensor. Along its other axes, the channel does not change."""

    axis: int
    labels: Labels


@dataclass(frozen=True)
class Cut:
    """An axis of a weight from which the indices of removed labels are cut.

    Attributes:
        layer: The layer of the weight.
        weight: Index in ``layer.weights``.
        axis: Axis of the weight, not negative.
        labels: One label for each index of the axis.
        role: The weight ``makes`` these channels, adds their ``bias``, ``filters`` each of them (a depthwise kernel),
            ``scales`` them (a batch norm's gamma), ``follows`` them (other parameters per channel), or ``reads`` them.
    """

    layer: Layer
    weight: int
    axis: int
    labels: Labels
    role: Role


class UnsupportedLayerError(Exception):
    """Channels cannot be followed through a layer; the message is the reason."""


class ChannelGraph:
    """The labels of a model's channels, and the weights that belong to them.

    Attributes:
        names: Path of every layer, by id.
        followed: The layers through which channels are followed, by id.
        cuts: By the layer's id, the index of the weight and the axis.
        widths: Entries of layer configurations that are a number of channels: by the layer's id, the key, and the
            index in its list (None for a number).
        entries: Channels of the inputs of each nested model, by its id.
        uses: The kernels of each call: layer, index of the weight, and number of positions at which every element is
            multiplied; None if a size is unknown.
        reasons: Why a label cannot be removed.
        abandoned: Why channels are followed through no call of a layer, by its id.
    """

    def __init__(self) -> None:
        """Create a graph without labels."""
        self.names: dict[int, str] = {}
        self.followed: dict[int, Layer] = {}
        self.cuts: dict[tuple[int, int, int], Cut] = {}
        self.widths: dict[int, dict[tuple[str, int | None], Labels]] = {}
        self.entries: dict[int, list[Channels]] = {}
        self.uses: list[tuple[Layer, int, int | None]] = []
        self.reasons: dict[int, str] = {}
        self.abandoned: dict[int, str] = {}
        self._parents: list[int] = []

    def new_labels(self, count: int) -> Labels:
        """Return new labels, shape [count]."""
        start = len(self._parents)
        self._parents.extend(range(start, start + count))
        return np.arange(start, start + count)

    def tie(self, one: Labels, other: Labels) -> None:
        """Unite the bundles of labels at the same index.

        Raises:
            UnsupportedLayerError: If the numbers of labels differ.
        """
        if len(one) != len(other):
            raise UnsupportedLayerError(f"{len(one)} channels meet {len(other)}")
        for a, b in zip(one.tolist(), other.tolist(), strict=True):
            a, b = self._root(a), self._root(b)
            if a != b:
                self._parents[max(a, b)] = min(a, b)

    def freeze(self, labels: Labels, reason: str) -> None:
        """Record why these labels, and all labels tied to them now or later, cannot be removed."""
        for label in np.unique(labels).tolist():
            self.reasons.setdefault(label, reason)

    def roots(self) -> Labels:
        """Return the bundle of each label, shape [labels]: the smallest label in it."""
        return np.array([self._root(label) for label in range(len(self._parents))], np.int64)

    def add_cut(self, layer: Layer, variable: Any, axis: int, labels: Labels, role: Role) -> Labels:
        """Assign labels to an axis of a weight, tie them to those of an earlier call, and return the earlier ones."""
        index = _index(layer, variable)
        axis %= len(variable.shape)
        if int(variable.shape[axis]) != len(labels):
            raise UnsupportedLayerError(f"axis {axis} of {variable.name} does not have one index per channel")
        cut = self.cuts.setdefault((id(layer), index, axis), Cut(layer, index, axis, labels, role))
        if cut.labels is not labels:
            self.tie(cut.labels, labels)
        return cut.labels

    def produce(self, layer: Layer, variable: Any, axis: int) -> Labels:
        """Return the labels of the channels that a weight produces, the same for every call of its layer."""
        cut = self.cuts.get((id(layer), _index(layer, variable), axis % len(variable.shape)))
        labels = cut.labels if cut else self.new_labels(int(variable.shape[axis]))
        return self.add_cut(layer, variable, axis, labels, "makes")

    def count_use(self, layer: Layer, variable: Any, sizes: Sequence[int | None]) -> None:
        """Record the multiplications of a call: every element of the weight, at every position of these sizes."""
        positions = None if None in sizes else int(np.prod(np.array(sizes, np.int64), dtype=np.int64))
        self.uses.append((layer, _index(layer, variable), positions))

    def abandon(self, layer: Layer, reason: str) -> None:
        """Freeze all labels of a layer, or of the layers of a model, and follow no channels through it."""
        self.followed.pop(id(layer), None)
        self.abandoned[id(layer)] = reason
        inside = f"{self.names[id(layer)]}/"
        for key, name in self.names.items():
            if key == id(layer) or name.startswith(inside):
                for labels in self._labels_of(key):
                    self.freeze(labels, reason)

    def _labels_of(self, key: int) -> list[Labels]:
        cuts = [cut.labels for cut in self.cuts.values() if id(cut.layer) == key]
        entries = [channels.labels for channels in self.entries.get(key, ())]
        return [*cuts, *entries, *self.widths.get(key, {}).values()]

    def _root(self, label: int) -> int:
        parents = self._parents
        while parents[label] != label:
            parents[label] = parents[parents[label]]
            label = parents[label]
        return label


def _index(layer: Layer, variable: Any) -> int:
    return next(index for index, weight in enumerate(layer.weights) if weight is variable)
