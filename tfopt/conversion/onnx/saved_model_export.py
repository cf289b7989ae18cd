"""Conversion of SavedModels to ONNX by tf2onnx, with handlers for ops that it lacks and readable errors."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import tensorflow as tf
from tf2onnx import optimizer, tf_loader, tfonnx, utils
from tf2onnx.onnx_opset.controlflow import Select
from tf2onnx.onnx_opset.nn import ConvOp
from tf2onnx.onnx_opset.tensor import OneHot
from tf2onnx.optimizer import back_to_back_optimizer
from tf2onnx.optimizer.optimizer_base import GraphOptimizerBase

from tfopt.artifacts.saved_model_proto import init_ops, read_meta_graph
from tfopt.conversion.onnx import block_weights as onnx_block_weights
from tfopt.conversion.onnx.einsums import convert_einsum
from tfopt.conversion.onnx.node_order import reorder, subgraphs
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.graph.const_arrays import fold_constants, restore_weights, zero_weights
from tfopt.processes.memory import free_graphs
from tfopt.saved_models.marked_functions import marked_functions, replaced_graph, unmark
from tfopt.saved_models.state import check_stateless

NEWEST = 18  # of the opsets that tf2onnx writes
PAD_AXES = 18  # the first opset whose Pad has axes
REPORT = "report this with the model"
RESHAPE = ("Reshape",)
merge_reshapes = back_to_back_optimizer._func_map[RESHAPE]
UNSUPPORTED = re.compile(r"op_type:(?P<op>\w+).* has unsupported type: tensor\((?P<type>\w+)\)")


def convert_saved_model(saved_model: Path, opset: int) -> onnx.ModelProto:
    """Return the ONNX form of a SavedModel's ``serving_default``, under the names of its signature.

    The graph is frozen first. Loops, branches and lookup tables are converted too.

    Raises:
        ComponentError: If an op cannot be converted; the ops are named. The newest opset is proposed if it helps.
    """
    check_stateless(saved_model, "an ONNX file")
    try:
        return _convert(saved_model, opset)
    except ComponentError as error:
        if opset == NEWEST or not _converts(saved_model):
            raise
        raise ComponentError(error.received, error.expected, f"pass opset={NEWEST}, to which it converts") from error


def _converts(saved_model: Path) -> bool:
    try:
        _convert(saved_model, NEWEST)
    except ComponentError:
        return False
    return True


def _convert(saved_model: Path, opset: int) -> onnx.ModelProto:
    try:
        graph_def, inputs, outputs, tables, names = _load_frozen(saved_model)
        # TensorFlow replaces characters that no Python identifier may have; in ONNX any text is a name.
        names |= zip(inputs, sorted(read_meta_graph(saved_model).signature_def["serving_default"].inputs), strict=True)
        free_graphs()
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(graph_def, name="")
            del graph_def
            converted = tfonnx.process_tf_graph(
                graph,
                opset=opset,
                input_names=inputs,
                output_names=outputs,
                tensors_to_rename=names,
                initialized_tables=tables,
                custom_op_handlers={
                    "Conv3D": (_conv3d, []),
                    "Einsum": (convert_einsum, []),
                    "Erfc": (_erfc, []),
                    "Expm1": (_expm1, []),
                    "Log1p": (_log1p, []),
                    "OneHot": (_one_hot, []),
                    "Select": (_select, []),
                    "SelectV2": (_select, []),
                },
                continue_on_error=False,
            )
        del graph
        free_graphs()
        passes = optimizer._get_optimizers().items()
        passes = {name: type(each.__name__, (_OptimizerPass, each), {}) for name, each in passes}
        with mock.patch.dict(back_to_back_optimizer._func_map, {RESHAPE: _merge_reshapes}):
            converted = optimizer.optimize_graph(converted, catch_errors=False, optimizers=passes)
        model: onnx.ModelProto = converted.make_model("tfopt")
        del converted
        reorder(model)
    except Exception as error:
        received = f"the converter failed: {first_line(error)[:300]}"
        raise ComponentError(received, "a graph that tf2onnx can convert", _fix_of(received)) from error
    free_graphs()
    _name_axes_of_pads(model, opset)
    check_model(model)
    return model


def _load_frozen(saved_model: Path) -> tuple[Any, list[str], list[str], dict[bytes, tuple[Any, Any]], dict[str, str]]:
    """Return a SavedModel's frozen GraphDef, after Grappler, its inputs, outputs, lookup tables and new names.

    TensorFlow loads, freezes and optimizes a graph without the weights of ``saved_model.pb``: each time it gets or
    returns a graph, it makes several copies.
    """
    meta_graph = read_meta_graph(saved_model)
    is_changed = unmark(meta_graph.graph_def, marked_functions(meta_graph.graph_def))
    stored = type(meta_graph.graph_def)()
    if not meta_graph.HasField("object_graph_def") and not init_ops(meta_graph):  # loading runs no operation
        stored.CopyFrom(meta_graph.graph_def)
        meta_graph.graph_def.CopyFrom(zero_weights(stored))
        is_changed = True

    def freeze(function: Any, inputs: list[str], outputs: list[str], _: bool) -> Any:
        graph_def = tf_loader.convert_variables_to_constants_large_model(function)
        restore_weights(graph_def, stored)
        graph_def = tf_loader.fix_freezing_errors_part2(tf_loader.fix_freezing_errors(graph_def))

        def optimize(reduced: Any) -> Any:
            with tf.Graph().as_default() as graph:
                tf.import_graph_def(reduced, name="")
                return tf_loader.tf_optimize(inputs, outputs, graph.as_graph_def(add_shapes=True))

        return fold_constants(graph_def, optimize)

    with (
        replaced_graph(saved_model, meta_graph) if is_changed else contextlib.nullcontext(saved_model) as folder,
        mock.patch.object(tf_loader, "from_function", freeze),
    ):
        del meta_graph
        return tf_loader.from_saved_model(  # type: ignore[no-any-return]  # tf2onnx has no types
            str(folder),
            None,
            None,
            tag=["serve"],
            signatures=["serving_default"],
            return_initialized_tables=True,
            return_tensors_to_rename=True,
        )


def _name_axes_of_pads(model: onnx.ModelProto, opset: int) -> None:
    """Name all axes in the pads before max pools.

    ONNX Runtime moves a pad of zeros into the pool (its `Pad_Fusion`), where borders are smaller than every number. It
    does so only for pads without axes, which opsets before 18 lack.
    """
    if opset < PAD_AXES:
        return
    for graph in subgraphs(model.graph):
        pooled = {node.input[0] for node in graph.node if node.op_type == "MaxPool"}
        sizes = {constant.name: constant.dims for constant in graph.initializer}
        for node in graph.node:
            if node.op_type == "Pad" and node.output[0] in pooled and len(node.input) < 4 and node.input[1] in sizes:
                axes = onnx.numpy_helper.from_array(np.arange(sizes[node.input[1]][0] // 2), f"{node.output[0]}_axes")
                graph.initializer.append(axes)
                node.input.extend([""] * (3 - len(node.input)) + [axes.name])


class _OptimizerPass(GraphOptimizerBase):  # type: ignore[misc]  # tf2onnx has no types
    """A pass of tf2onnx that does not write the constants to their protocol buffers, and accepts sums with scalars.

    Replaced parts of a protocol buffer stay in memory: all passes over 200 MB of weights together took 7 GB. Constants
    have their values in `Node.attr`, where passes read them, and are written at the end.
    """

    def optimize(self, graph: Any, iteration: int) -> Any:
        self.opt_iteration = iteration
        graph = self._optimize(graph)
        for node in graph.get_nodes():
            if not node.is_const():
                node.update_proto()
        graph.delete_unused_nodes(graph.outputs)
        return graph

    def _add_handler(self, transpose: Any, add: Any) -> bool:
        """Move a transpose behind a sum; the pass takes any constant for a bias, and fails with one without axes."""
        if add.inputs[1].is_const() and not add.inputs[1].get_tensor_value(as_list=False).shape:
            moved: bool = self._handle_node_having_branches(transpose, add)
        else:
            moved = super()._add_handler(transpose, add)
        return moved


def _merge_reshapes(graph: Any, reshape: Any, readers: list[Any]) -> list[str]:
    """Remove a reshape before another one, unless that one has a 0: the size of its input in this axis."""
    sizes = readers[0].inputs[1]
    if sizes.is_const() and not sizes.get_tensor_value(as_list=False).all():
        return []
    removed: list[str] = merge_reshapes(graph, reshape, readers)
    return removed


def check_model(model: onnx.ModelProto) -> None:
    """Raise ComponentError unless all ops are ONNX ops, the signature has known ranks, and ONNX's checker passes.

    tf2onnx leaves ops that it does not know in the file and reports no error.
    """
    versions = {domain.domain: domain.version for domain in model.opset_import}
    ops = {(node.op_type, node.domain) for graph in subgraphs(model.graph) for node in graph.node}
    ops = {
        (op, domain) for op, domain in ops if domain != onnx_block_weights.DOMAIN
    }  # those of ONNX Runtime's quantizers
    unknown = {op for op, domain in ops if not onnx.defs.has(op, versions.get(domain, 1), domain)}
    if unknown:
        received = f"ops that ONNX lacks, or tf2onnx does not know: {', '.join(sorted(unknown))}"
        expected = "a model of ops that can be converted"
        raise ComponentError(received, expected, "express them with other ops in the model")
    ends = [*model.graph.input, *model.graph.output]
    tensors = [end for end in ends if end.type.HasField("tensor_type")]
    if unranked := [end.name for end in tensors if not end.type.tensor_type.HasField("shape")]:
        received = f"{', '.join(unranked)}: unknown rank"
        fix = "declare it in the model, as with tf.ensure_shape(value, [None, 3]), and export it again"
        raise ComponentError(received, "inputs and outputs with a known number of axes, of any size", fix)
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        if typed := UNSUPPORTED.search(str(error)):
            received = f"{typed['op']} of {typed['type']} values"
            fix = "cast its inputs to float32 or int32 in the model"
            if typed["type"] in ("string", "complex64", "complex128"):
                fix = "express it with other ops in the model"
            raise ComponentError(received, "types for which ONNX has the operator", fix) from error
        received = f"the converted file is not valid ONNX: {first_line(error)[:300]}"
        raise ComponentError(received, "a file that passes ONNX's own checker", _fix_of(received)) from error


def _fix_of(received: str) -> str:
    return "export the model from before cast_precision" if "bfloat16" in received else REPORT


def _conv3d(graph: Any, node: Any, _name: str, _: Any) -> None:
    """Convert a convolution in 3-D. tf2onnx counts groups in 2-D only."""
    image, kernel = map(graph.get_shape, node.input[:2])
    channels = image[1 if node.attr["data_format"].s == b"NCDHW" else -1]
    ConvOp.any_version(graph.opset, graph, node)
    node.set_attr("group", max(channels // kernel[-2], 1))


def _erfc(graph: Any, node: Any, name: str, _: Any) -> None:
    """Convert ``erfc(x) = 1 - erf(x)``, and ``erfc(-x) = 1 + erf(x)``, which runtimes recognize as a GELU."""
    dtype, shape = graph.get_dtype(node.input[0]), graph.get_shape(node.input[0])
    product = node.inputs[0]
    negated = [factor for factor in product.inputs if factor.type == "Neg"] if product.type == "Mul" else []
    value = node.input[0]
    if len(negated) == 1:  # the product of -x and a constant
        pairs = zip(product.inputs, product.input, strict=True)
        factors = [factor.input[0] if factor in negated else output for factor, output in pairs]
        value = graph.make_node("Mul", factors, dtypes=[dtype], shapes=[shape]).output[0]
    erf = graph.make_node("Erf", [value], dtypes=[dtype], shapes=[shape]).output[0]
    one = graph.make_const(f"{name}/one", np.ones((), utils.map_onnx_to_numpy_type(dtype))).output[0]
    graph.remove_node(name)
    op, operands = ("Add", [erf, one]) if negated else ("Sub", [one, erf])
    graph.make_node(op, operands, name=name, outputs=node.output, dtypes=[dtype], shapes=[shape])


def _expm1(graph: Any, node: Any, name: str, _: Any) -> None:
    """Convert ``expm1(x) = tanh(x / 2) (exp(x) + 1)``: ``exp(x) - 1`` would lose the digits of small values."""
    make, constant, outputs = _remove(graph, node)
    tanh, exp = make("Tanh", make("Mul", node.input[0], constant(0.5))), make("Exp", node.input[0])
    make("Mul", tanh, make("Add", exp, constant(1)), name=name, outputs=outputs)


def _log1p(graph: Any, node: Any, name: str, _: Any) -> None:
    """Convert ``log1p(x) = log(u) + (x - (u - 1)) / u``, where u is x + 1 rounded; exact at -1 and infinity."""
    make, constant, outputs = _remove(graph, node)
    value = make("Add", node.input[0], constant(1))
    represented = make("Sub", value, constant(1))
    lost = make("Div", make("Sub", node.input[0], represented), value)
    is_exact = make("Equal", node.input[0], represented, dtypes=[onnx.TensorProto.BOOL])
    lost = make("Where", is_exact, constant(0), lost)
    make("Add", make("Log", value), lost, name=name, outputs=outputs)


def _remove(graph: Any, node: Any) -> tuple[Callable[..., str], Callable[[float], str], list[str]]:
    """Remove an elementwise op. Return what makes an op or a constant of its dtype and shape, and the op's outputs."""
    facts = {"dtypes": [graph.get_dtype(node.input[0])], "shapes": [graph.get_shape(node.input[0])]}
    dtype, outputs = utils.map_onnx_to_numpy_type(facts["dtypes"][0]), node.output
    graph.remove_node(node.name)

    def make(op: str, *operands: str, **changed: Any) -> str:
        output: str = graph.make_node(op, list(operands), **facts | changed).output[0]
        return output

    def constant(value: float) -> str:
        name: str = graph.make_const(utils.make_name(node.name), np.array(value, dtype)).output[0]
        return name

    return make, constant, outputs


def _one_hot(graph: Any, node: Any, name: str, _: Any) -> None:
    """Convert a one-hot encoding: a negative index is no class in TensorFlow, and counts from the end in ONNX."""
    if node.inputs[0].type not in ("ArgMax", "ArgMin"):
        int64 = onnx.TensorProto.INT64
        indices, depth = (
            graph.make_node("Cast", [source], attr={"to": int64}, dtypes=[int64], shapes=[graph.get_shape(source)])
            for source in node.input[:2]
        )
        zero = graph.make_const(f"{name}/zero", np.zeros((), np.int64)).output[0]
        is_negative = graph.make_node("Less", [indices.output[0], zero]).output[0]
        classes = [is_negative, depth.output[0], indices.output[0]]
        shape = graph.get_shape(node.input[0])
        beyond = graph.make_node("Where", classes, dtypes=[int64], shapes=[shape]).output[0]
        graph.replace_input(node, node.input[0], beyond, 0)
    OneHot.version_11(graph, node)


def _select(graph: Any, node: Any, _name: str, _: Any) -> None:
    """Convert a selection of floats to ``Where``.

    tf2onnx multiplies both operands by 0 or 1 and adds the products: an infinite value that is not selected, such as
    the logarithm of 0, is then NaN.
    """
    if graph.get_dtype(node.output[0]) in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        node.set_attr("handles_nan", 1)
    Select.version_9(graph, node)
    node.attr.pop("handles_nan", None)
