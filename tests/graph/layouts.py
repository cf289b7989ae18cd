"""Convert convolutions to channels last, the only layout of TensorFlow on CPUs without oneDNN."""

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue

# Index of the data among the inputs.
DATA = {"Conv2D": 0, "Conv3D": 0, "DepthwiseConv2dNative": 0, "Conv2DBackpropInput": 2, "Conv3DBackpropInputV2": 2}


def channels_last(graph_def):
    """Insert transpositions before and after each channels-first convolution; output names are unchanged."""
    result = type(graph_def).FromString(graph_def.SerializeToString())
    del result.node[:]
    for node in graph_def.node:
        is_channels_first = node.op in DATA and node.attr["data_format"].s in (b"NCHW", b"NCDHW")
        result.node.extend(_between_transpositions(node) if is_channels_first else [node])
    return result


def _between_transpositions(node):
    rank = len(node.attr["data_format"].s)
    to_last, to_first = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]  # permutations of the axes
    data, dtype = node.input[DATA[node.op]], node.attr["T"]
    last, first = _constant(f"{node.name}/last", to_last), _constant(f"{node.name}/first", to_first)
    transposed = _transposed(f"{node.name}/turned", data, last.name, dtype)
    inner = type(node).FromString(node.SerializeToString())
    inner.name, inner.input[DATA[node.op]] = f"{node.name}/inner", transposed.name
    inner.attr["data_format"].s = b"NHWC" if rank == 4 else b"NDHWC"
    for name in ("strides", "dilations"):
        if name in inner.attr:
            inner.attr[name].list.i[:] = [inner.attr[name].list.i[axis] for axis in to_last]
    nodes = [last, first, transposed, inner, _transposed(node.name, inner.name, first.name, dtype)]
    if DATA[node.op] == 2:  # the first input is the shape of the result
        axis = _constant(f"{node.name}/axis", 0)
        sizes = type(node)(name=f"{node.name}/sizes", op="GatherV2", input=[node.input[0], last.name, axis.name])
        for name in ("Tparams", "Tindices", "Taxis"):
            sizes.attr[name].type = tf.int32.as_datatype_enum
        inner.input[0] = sizes.name
        nodes += [axis, sizes]
    return nodes


def _constant(name, value):
    tensor = tf.make_tensor_proto(np.asarray(value, np.int32))
    attr = {"value": AttrValue(tensor=tensor), "dtype": AttrValue(type=tensor.dtype)}
    return tf.compat.v1.NodeDef(name=name, op="Const", attr=attr)


def _transposed(name, data, axes, dtype):
    attr = {"T": dtype, "Tperm": AttrValue(type=tf.int32.as_datatype_enum)}
    return tf.compat.v1.NodeDef(name=name, op="Transpose", input=[data, axes], attr=attr)
