"""Channels through layers that only move numbers: Flatten, Reshape, Permute."""

import numpy as np

from tfopt.components.prune.channels.labels import Book, Channels, Labels, NotFollowedError
from tfopt.keras_models.layer_graph import Call


def flatten(book: Book, call: Call, given: list[Channels]) -> Channels:
    """Each channel stands in the row once for every position: H x W x C becomes one axis."""
    if getattr(call.layer, "data_format", None) == "channels_first" and len(call.inputs[0].shape) > 2:
        raise NotFollowedError("it moves the channels to the end before it flattens")
    return Channels(1, _spread(call, given[0]).ravel())


def reshape(book: Book, call: Call, given: list[Channels]) -> Channels:
    """One axis of the result carries the channels, the last where none does yet: what stands there is tied then."""
    sizes = list(call.outputs[0].shape[1:])
    if None in sizes:
        raise NotFollowedError("a size of its result is open")
    labels = _spread(call, given[0]).reshape(sizes)
    rows = [np.moveaxis(labels, axis, 0).reshape(size, -1) for axis, size in enumerate(sizes)]
    carrying = [axis for axis, row in enumerate(rows) if (row == row[:, :1]).all()]
    axis = carrying[-1] if carrying else len(sizes) - 1
    if not carrying:
        for column in rows[axis].T:
            book.tie(rows[axis][:, 0], column)
    book.widths.setdefault(id(call.layer), {})["target_shape", axis] = rows[axis][:, 0]
    return Channels(axis + 1, rows[axis][:, 0])


def permute(book: Book, call: Call, given: list[Channels]) -> Channels:
    """The channels go where their axis goes."""
    return Channels(list(call.layer.dims).index(given[0].axis) + 1, given[0].labels)


def _spread(call: Call, channels: Channels) -> Labels:
    """The label of every number of one record."""
    sizes = list(call.inputs[0].shape[1:])
    if None in sizes:
        raise NotFollowedError("a size of its input is open")
    line = [1] * len(sizes)
    line[channels.axis - 1] = -1
    return np.broadcast_to(channels.labels.reshape(line), sizes)
