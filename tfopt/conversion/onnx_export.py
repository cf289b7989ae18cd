"""tf2onnx, with the op that it lacks and Keras 3's GELU needs, and its errors in words."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tf2onnx import optimizer, tf_loader, tfonnx, utils

from tfopt.errors import ComponentError, first_line


def convert(saved_model: Path, opset: int) -> onnx.ModelProto:
    """Return the ONNX form of a SavedModel's ``serving_default``, under the names of its signature.

    The graph is frozen first; loops, branches and lookup tables are converted too.

    Raises:
        ComponentError: When an op cannot be converted; the ops are named.
    """
    try:
        graph_def, inputs, outputs, tables, names = tf_loader.from_saved_model(
            str(saved_model),
            None,
            None,
            tag=["serve"],
            signatures=["serving_default"],
            return_initialized_tables=True,
            return_tensors_to_rename=True,
        )
        # TensorFlow replaces what no Python parameter may have in its name; in ONNX any text is one.
        names |= zip(inputs, _inputs(saved_model), strict=True)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(graph_def, name="")
            converted = tfonnx.process_tf_graph(
                graph,
                opset=opset,
                input_names=inputs,
                output_names=outputs,
                tensors_to_rename=names,
                initialized_tables=tables,
                custom_op_handlers={"Erfc": (_erfc, [])},
                continue_on_error=False,
            )
            model: onnx.ModelProto = optimizer.optimize_graph(converted, catch_errors=False).make_model("tfopt")
    except Exception as error:
        raise ComponentError(
            f"the converter failed: {first_line(error)[:300]}",
            "a graph that tf2onnx can convert",
            "try another opset; the converter may not know this graph, or the model may be larger than 2 GB",
        ) from error
    check(model)
    return model


def check(model: onnx.ModelProto) -> None:
    """Raise ComponentError unless every op is one of ONNX's, the graph is whole, and its ends have axes.

    tf2onnx itself leaves ops that it does not know in the file, and says that all is well.
    """
    known = {domain.domain: domain.version for domain in model.opset_import}
    foreign = {
        node.op_type
        for node in _nodes(model.graph)
        if not onnx.defs.has(node.op_type, known.get(node.domain, 1), node.domain)
    }
    if foreign:
        raise ComponentError(
            f"ops that ONNX lacks, or tf2onnx does not know: {', '.join(sorted(foreign))}",
            "a model of ops that can be converted",
            "express them with other ops in the model, or choose a newer opset",
        )
    ends = [*model.graph.input, *model.graph.output]
    if vague := [
        end.name for end in ends if end.type.HasField("tensor_type") and not end.type.tensor_type.HasField("shape")
    ]:
        raise ComponentError(
            f"{', '.join(vague)}: it is not known how many axes it has",
            "inputs and outputs with a known number of axes, of whichever sizes",
            "say it in the model, as with tf.ensure_shape(value, [None, 3]), and export it again",
        )
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ComponentError(
            f"the converted file is no valid ONNX: {first_line(error)[:300]}",
            "a file that passes ONNX's own checker",
            "try another opset, and report this with the model",
        ) from error


def _inputs(saved_model: Path) -> list[str]:
    """The names of the signature's inputs, in the order of tf2onnx."""
    written = saved_model_pb2.SavedModel.FromString((saved_model / "saved_model.pb").read_bytes())
    meta = next(meta for meta in written.meta_graphs if "serve" in meta.meta_info_def.tags)
    return sorted(meta.signature_def["serving_default"].inputs)


def _erfc(graph: Any, node: Any, name: str, _: Any) -> None:
    """``erfc(x) = 1 - erf(x)``, and ``erfc(-x) = 1 + erf(x)``, the form in which runtimes find a GELU."""
    dtype, shape = graph.get_dtype(node.input[0]), graph.get_shape(node.input[0])
    product = node.inputs[0]
    negated = [given for given in product.inputs if given.type == "Neg"] if product.type == "Mul" else []
    value = node.input[0]
    if len(negated) == 1:  # the product of -x and a constant
        factors = [
            given.input[0] if given in negated else output
            for given, output in zip(product.inputs, product.input, strict=True)
        ]
        value = graph.make_node("Mul", factors, dtypes=[dtype], shapes=[shape]).output[0]
    erf = graph.make_node("Erf", [value], dtypes=[dtype], shapes=[shape]).output[0]
    one = graph.make_const(f"{name}/one", np.ones((), utils.map_onnx_to_numpy_type(dtype))).output[0]
    graph.remove_node(name)
    op, operands = ("Add", [erf, one]) if negated else ("Sub", [one, erf])
    graph.make_node(op, operands, name=name, outputs=node.output, dtypes=[dtype], shapes=[shape])


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in [attribute.g, *attribute.graphs]:
                yield from _nodes(body)
