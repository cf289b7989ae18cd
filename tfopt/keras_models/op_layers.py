"""Layers of Keras 2 that call a function of TensorFlow's API by its name: which names a model file may use.

Keras writes such a layer for each operation of TensorFlow that a model uses (``tf.abs(x)``). A file can name any
function of the API, with any arguments, and Keras calls it while it loads the file: ``tf.io.gfile.rmtree("/data")``.
"""

import re

# Operations that call Python functions, write or find files, or reach other processes.
EFFECTS = re.compile(
    r"raw_ops\..*|(io\.)?(write_file|read_file|matching_files)|io\.(decode|encode)_proto|random\.fixed_unigram.*|"
    r"[Pp]rint|py_func(tion)?|numpy_function|case|cond|foldl|foldr|scan|map_fn|vectorized_map|while_loop|"
    r"(rpc|xla|d_tensor|configure|shutdown|delete|check)_.*"
)
TENSOR_CLASSES = ("RaggedTensor", "SparseTensor", "sparse.SparseTensor", "IndexedSlices")


def forbidden_call(item: dict[str, object]) -> str:
    """Return what the layer of a configuration calls, if that is no computation on tensors; otherwise an empty text."""
    config = item.get("config")
    if not isinstance(config, dict):
        return ""
    kind = item.get("class_name")
    if kind in ("TFOpLambda", "SlicingOpLambda"):
        name = str(config.get("function"))
        return "" if _computes(name) else f"tf.{name}"
    if kind == "ClassMethod":
        name, method = str(config.get("cls_symbol")), str(config.get("method_name"))
        is_tensor = name.removeprefix("compat.v1.") in TENSOR_CLASSES and not method.startswith("_")
        return "" if is_tensor else f"tf.{name}.{method}"
    if kind in ("InstanceProperty", "InstanceMethod") and str(config.get("attr_name")).startswith("_"):
        return str(config["attr_name"])
    return ""


def _computes(name: str) -> bool:
    """Return True for the functions that Keras makes layers of, if they only compute."""
    from tensorflow.python.util import dispatch, tf_export

    function = tf_export.get_symbol_from_name(name)
    is_operation = function is None or hasattr(function, dispatch.FALLBACK_DISPATCH_ATTR)  # Keras reports a missing one
    return is_operation and not EFFECTS.fullmatch(name.removeprefix("compat.v1."))
