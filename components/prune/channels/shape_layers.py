"""Propagation rules of layers that only move elements: Flatten, Reshape, Permute."""

import numpy as np

from tfopt.components.prune.channels.labels import ChannelGraph, Channels, Labels, UnsupportedLayerError
from tfopt.keras_models.layer_graph import Call


def flatten(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Flatten H x W x C to one axis, on which each channel occurs once per position."""
    if getattr(call.layer, "data_format", None) == "channels_first" and len(call.inputs[0].shape) > 2:
        raise UnsupportedLayerError("it moves the channels to the end before it flattens")
    return Channels(1, _labels_by_element(call, inputs[0]).ravel())


def reshape(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Find the output axis that carries the channels. If there is none, tie the labels along the last axis."""
    sizes = list(call.outputs[0].shape[1:])
    if None in sizes:
        raise UnsupportedLayerError("a size of its output is unknown")
    labels = _labels_by_element(call, inputs[0]).reshape(sizes)
    rows = [np.moveaxis(labels, axis, 0).reshape(size, -1) for axis, size in enumerate(sizes)]
    carrying = [axis for axis, row in enumerate(rows) if (row == row[:, :1]).all()]
    axis = carrying[-1] if carrying else len(sizes) - 1
    if not carrying:
        for column in rows[axis].T:
            graph.tie(rows[axis][:, 0], column)
    graph.widths.setdefault(id(call.layer), {})["target_shape", axis] = rows[axis][:, 0]
    return Channels(axis + 1, rows[axis][:, 0])


def permute(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> Channels:
    """Return the channels on their new axis."""
    return Channels(list(call.layer.dims).index(inputs[0].axis) + 1, inputs[0].labels)


def _labels_by_element(call: Call, channels: Channels) -> Labels:
    """Return the label of every element of one record, in the shape of the input without the batch."""
    sizes = list(call.inputs[0].shape[1:])
    if None in sizes:
        raise UnsupportedLayerError("a size of its input is unknown")
    shape = [1] * len(sizes)
    shape[channels.axis - 1] = -1
    return np.broadcast_to(channels.labels.reshape(shape), sizes)
