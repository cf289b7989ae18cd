"""Sizes of the elements of lists, which loops read and write, in a model with a fixed batch size.

The lists of a recurrent layer have an element for each step, ``[batch, units]``. A model is traced with an open batch
size, which its graph has as the constant -1 of each list.
"""

import numpy as np

from tfopt.graph.graph_def import GraphDef

WITH_SIZES = ("TensorListReserve", "TensorListFromTensor", "TensorListStack", "TensorListGetItem")


def fix_list_sizes(graph: GraphDef) -> None:
    """Replace the open first size of lists' elements by a batch size of 1, in a GraphDef and its functions, in place.

    An open first size is taken for the batch size: a comparison of outputs would show another meaning. The lists get
    constants of their own, because other operations may read the old ones.
    """
    import tensorflow as tf

    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        constants = {node.name: node for node in nodes if node.op == "Const"}
        for node in [node for node in nodes if node.op in WITH_SIZES]:
            for index, constant in enumerate([constants.get(source.partition(":")[0]) for source in node.input]):
                if constant is None:
                    continue
                sizes = tf.make_ndarray(constant.attr["value"].tensor)
                if sizes.ndim != 1 or not sizes.size or sizes[0] != -1 or sizes[1:].min(initial=0) < 0:
                    continue
                fixed = nodes.add(name=f"{node.name}/sizes_{index}", op="Const")
                fixed.attr["dtype"].CopyFrom(constant.attr["dtype"])
                values = np.array([1, *sizes[1:]], sizes.dtype)
                fixed.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values))
                node.input[index] = node.input[index].replace(constant.name, fixed.name, 1)
