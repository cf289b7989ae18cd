"""A frozen model written so that XLA compiles it: a function for each signature, or operations marked one by one.

A function that is marked must be compiled as one program, or the call fails. Marked operations are grouped when the
model runs, by TensorFlow's pass ``MarkForCompilation``, and what it does not take into a group runs as before.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfopt.components.compile_xla.unsupported_ops import obstacle
from tfopt.graph import saved_model
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature

MUST, MAY = "_XlaMustCompile", "_XlaCompile"  # of a function, and of a node


def write_clustered(frozen: Frozen, folder: Path) -> int:
    """Write a SavedModel, with its tables and assets, and return how many operations may be compiled."""
    marked = [node for node in frozen.graph.node if node.op not in ("Const", "Placeholder") and not obstacle(node)]
    for node in marked:
        node.attr[MAY].b = True
    saved_model.write(frozen, folder)
    return len(marked)


def write_compiled(frozen: Frozen, folder: Path, sizes: list[int]) -> list[str]:
    """Write a SavedModel, and return the keys of the signatures that were added.

    Args:
        frozen: A model that XLA can compile.
        folder: Where ``saved_model.pb`` goes.
        sizes: For each, and for each signature with a free batch, a signature of this fixed batch size is added.
    """
    import tensorflow as tf

    made, added = {}, []
    for key, signature in frozen.signatures.items():
        serve = _compiled(frozen.graph, signature)
        made[key] = _concrete(serve, signature, None)
        free = [end for end in signature.inputs.values() if end.shape and end.shape[0] is None]
        for size in sizes if free else []:
            added.append(f"{key}_batch_{size}")
            made[added[-1]] = _concrete(serve, signature, size)
    tf.saved_model.save(tf.Module(), str(folder), signatures=made)
    return added


def _compiled(graph: Any, signature: Signature) -> Callable[..., Any]:
    import tensorflow as tf

    wanted = [end.tensor for end in signature.outputs.values()]
    body = tf.compat.v1.graph_util.extract_sub_graph(graph, [end.node for end in signature.outputs.values()])
    given = {end.node for end in signature.inputs.values()}
    kept = [node for node in body.node if node.name not in given]  # XLA knows no placeholders
    del body.node[:]
    body.node.extend(kept)
    read = {tensor.partition(":")[0] for node in kept for tensor in node.input}

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def compiled(inputs: dict[str, Any]) -> dict[str, Any]:
        fed = {end.tensor: inputs[name] for name, end in signature.inputs.items() if end.node in read}
        results = tf.import_graph_def(body, input_map=fed, return_elements=wanted, name="")
        return dict(zip(signature.outputs, results, strict=True))

    return compiled  # type: ignore[no-any-return]


def _concrete(serve: Callable[..., Any], signature: Signature, size: int | None) -> Any:
    import tensorflow as tf

    def spec(name: str, end: Endpoint) -> Any:
        shape = (size, *end.shape[1:]) if size and end.shape and end.shape[0] is None else end.shape
        return tf.TensorSpec(shape, tf.as_dtype(end.dtype), name=name)

    specs = {name: spec(name, end) for name, end in signature.inputs.items()}
    return tf.function(lambda **inputs: serve(inputs), autograph=False).get_concrete_function(**specs)
