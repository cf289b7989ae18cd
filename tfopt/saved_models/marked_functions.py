"""Let TensorFlow inline marked functions: those of ``tf.function(jit_compile=True)``, and what Keras 3 compiles itself.

Keras 3 has XLA compile grouped convolutions. Laws, quantization and tf2onnx do not see what is in such a function.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tfopt.artifacts.saved_model_proto import functions_called
from tfopt.graph.op_registry import attribute
from tfopt.graph_def import FunctionDef, GraphDef, node_of, nodes, reach
from tfopt.storage.staging import link_tree

XLA, NO_INLINE = "_XlaMustCompile", "_noinline"  # attributes of a function; the first also of its calls
COMPILED = "compiled_by_tfopt"  # part of the names of the functions that `compile_xla` adds


@contextlib.contextmanager
def replaced_graph(saved_model: Path, meta_graph: object) -> Iterator[Path]:
    """Yield a folder with the files of a SavedModel and another MetaGraphDef; it exists until the block ends."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

    with tempfile.TemporaryDirectory(prefix="tfopt-") as scratch:
        folder = Path(scratch, "model")
        link_tree(saved_model, folder)
        (folder / "saved_model.pb").unlink()  # a link to the file of the model
        proto = Proto(saved_model_schema_version=1, meta_graphs=[meta_graph])
        (folder / "saved_model.pb").write_bytes(proto.SerializeToString())
        yield folder


def marked_functions(graph: GraphDef) -> set[str]:
    """Return the names of functions that TensorFlow does not inline because of a mark."""
    return {one.signature.name for one in graph.library.function if XLA in one.attr or NO_INLINE in one.attr}


def functions_to_inline(graph: GraphDef) -> set[str]:
    """Return the names of marked functions, but for those of `compile_xla`, and those that run by XLA only."""
    functions = {function.signature.name: function for function in graph.library.function}
    bodies = {name: functions_called(function.node_def) & set(functions) for name, function in functions.items()}
    staying = {name for name in functions if COMPILED in name or _needs_xla(functions[name])}
    return {name for name in marked_functions(graph) if not reach([name], lambda called: bodies[called]) & staying}


def unmark(graph: GraphDef, names: set[str]) -> bool:
    """Remove the marks of functions and of their calls, and return whether there are such functions."""
    for function in graph.library.function:
        if function.signature.name in names:
            function.attr.pop(XLA, None)
            function.attr.pop(NO_INLINE, None)
    for node in nodes(graph) if names else ():
        if functions_called([node]) & names:
            node.attr.pop(XLA, None)
    return bool(names)


def _needs_xla(function: FunctionDef) -> bool:
    """Return whether a function may have a convolution in 3-D with groups, which TensorFlow cannot run on CPUs."""
    places = {one.name: place for place, one in enumerate(function.signature.input_arg)}
    owners = [(name, function.arg_attr[place].attr) for name, place in places.items() if place in function.arg_attr]
    owners += [(node.name, node.attr) for node in function.node_def]
    stored = {name: attr["_output_shapes"].list.shape for name, attr in owners if "_output_shapes" in attr}
    shapes = {name: [axis.size for axis in outputs[0].dim] for name, outputs in stored.items() if outputs}
    for node in function.node_def:
        if node.op == "Conv3D":
            image, kernel = (shapes.get(node_of(source), []) for source in node.input[:2])
            axis = 1 if attribute(node, "data_format").s == b"NCDHW" else -1
            if len(image) != 5 or len(kernel) != 5 or image[axis] != kernel[3]:
                return True
    return False
