"""Labels of channels, propagated through the graph of a model, and the weights that belong to them.

Every channel that a layer produces gets a label. Layers that pass channels through pass their labels through. Where two
channels meet at one position (a residual sum, a gate, a second call of the same layer), their labels are tied. All
labels that are tied to each other are one *bundle*; a bundle is removed entirely or remains. A label may occur several
times along an axis: after a Flatten once for each position, in the kernel of a recurrent layer once for each gate.

Reference:
    Bundles are the dependency groups of Fang et al., "DepGraph: Towards Any Structural Pruning", CVPR 2023, computed
    for single channels with a union-find structure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tfopt.keras_models.layer_graph import Layer

Labels = NDArray[np.int64]
Remaining = NDArray[np.bool_]  # shape [labels]: True for channels that remain
# A weight makes channels, adds their bias, reads them, filters each of them (a depthwise kernel), scales them (a batch
# norm's gamma), or follows them (other parameters per channel).
Role = Literal["makes", "bias", "reads", "filters", "scales", "follows"]


@dataclass(frozen=True)
class Channels:
    """The labels along one axis of a tensor. Along its other axes, the channel does not change."""

    axis: int
    labels: Labels


@dataclass(frozen=True)
class Cut:
    """An axis of a weight from which the indices of removed labels are cut."""

    layer: Layer
    weight: int  # index in ``layer.weights``
    axis: int  # not negative
    labels: Labels  # one for each index of the axis
    role: Role


class UnsupportedLayerError(Exception):
    """Channels cannot be followed through a layer; the message is the reason."""


@dataclass
class ChannelGraph:
    """The labels of a model's channels, and the weights that belong to them, by the ids of layers."""

    names: dict[int, str] = field(default_factory=dict)  # path of every layer
    followed: dict[int, Layer] = field(default_factory=dict)  # the layers through which channels are followed
    cuts: dict[tuple[int, int, int], Cut] = field(default_factory=dict)  # by layer, index of the weight, and axis
    # Entries of layer configurations that are a number of channels: key, and index in its list (None for a number).
    widths: dict[int, dict[tuple[str, int | None], Labels]] = field(default_factory=dict)
    entries: dict[int, list[Channels]] = field(default_factory=dict)  # the inputs of each nested model
    # Kernels of each call: index of the weight, and number of positions at which it is multiplied (None if unknown).
    uses: list[tuple[Layer, int, int | None]] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)  # of the heads of attention, by label
    reasons: dict[int, str] = field(default_factory=dict)  # why a label cannot be removed
    abandoned: dict[int, str] = field(default_factory=dict)  # why channels are followed through no call of a layer
    _parents: list[int] = field(default_factory=list)

    def new_labels(self, count: int) -> Labels:
        """Return new labels, shape [count]."""
        start = len(self._parents)
        self._parents.extend(range(start, start + count))
        return np.arange(start, start + count)

    def tie(self, one: Labels, other: Labels) -> None:
        """Unite the bundles of labels at the same index; raise UnsupportedLayerError if their numbers differ."""
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

    def produce(self, layer: Layer, variable: Any, axis: int, repeats: int = 1) -> Labels:
        """Return the labels of the channels that a weight produces, the same for every call of its layer.

        The channels occur ``repeats`` times along the axis.
        """
        cut = self.cuts.get((id(layer), _index(layer, variable), axis % len(variable.shape)))
        labels = cut.labels if cut else np.tile(self.new_labels(int(variable.shape[axis]) // repeats), repeats)
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
