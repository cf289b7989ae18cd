"""Python code in Keras files: found before a file is loaded, since loading it would run the code.

A Lambda layer is stored as marshalled bytecode. A configuration also names modules, which Keras imports, and attributes
of them, which it calls. Keras 2 stores an operation of TensorFlow that a model uses (``tf.abs(x)``) as a layer with a
name of TensorFlow's API. A file can name any function of the API, with any arguments, and Keras calls it while it loads
the file: ``tf.io.gfile.rmtree("/data")``. A layer with a vocabulary may name any file, which Keras reads, and copies
into what it saves.
"""

import builtins
import contextlib
import importlib.util
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfopt.errors import ComponentError
from tfopt.keras_models.archive import read_entry

TRUST = "TFOPT_TRUST_MODEL_CODE"  # an environment variable, because child processes load models too
KERAS_PACKAGES = ("keras", "tf_keras", "tensorflow_model_optimization")
FUNCTIONS = re.compile(r"\w+(\.src)?\.(activations|constraints|initializers|losses|metrics|ops|regularizers)(\.\w+)*")
# Operations that call Python functions, write or find files, or reach other processes.
EFFECTS = re.compile(
    r"raw_ops\..*|(io\.)?(write_file|read_file|matching_files)|io\.(decode|encode)_proto|(random|nn)\.fixed_unigram.*|"
    r"[Pp]rint|py_func(tion)?|numpy_function|case|cond|foldl|foldr|scan|map_fn|vectorized_map|while_loop|"
    r"(rpc|xla|d_tensor|configure|shutdown|delete|check)_.*"
)
# Arguments of layers that are paths; a vocabulary is one if it is a text and no list.
PATHS = re.compile(r"(\w+_)?vocabulary|idf_weights|(\w+_)?(path|file|filename|filepath|folder|dir|directory|url|uri)")
TENSOR_CLASSES = ("RaggedTensor", "SparseTensor", "sparse.SparseTensor", "IndexedSlices")

Configuration = Any  # parsed JSON

_lock = threading.Lock()
_active: list[str] = []  # values of open contexts: some within others, some in other threads
_before: str | None = None


class ModelCodeError(ComponentError):
    """A model file contains Python code, and the user does not trust it."""


@contextlib.contextmanager
def trusted_code(trusted: bool) -> Iterator[None]:
    """Allow code in model files in this process and its child processes, or not, while the body runs.

    Steps that run at the same time, in threads, have the same value: the scheduler of the engine sees to it.
    """
    global _before
    own = "1" if trusted else "0"
    with _lock:
        if not _active:
            _before = os.environ.get(TRUST)
        _active.append(own)
        os.environ[TRUST] = own
    try:
        yield
    finally:
        with _lock:
            del _active[len(_active) - 1 - _active[::-1].index(own)]
            remaining = _active[-1] if _active else _before
            if remaining is None:
                del os.environ[TRUST]
            else:
                os.environ[TRUST] = remaining


def is_trusted() -> bool:
    """Return True inside of ``trusted_code(True)``."""
    return os.environ.get(TRUST) == "1"


def check_code(file: Path, keras: Any) -> None:
    """Raise ModelCodeError if a Keras file contains Python code, or names functions outside of Keras or other files.

    It is a ``.keras``, ``.h5`` or ``.hdf5`` file, or the folder of a SavedModel that Keras 2 wrote, and will be loaded
    with this package, ``keras`` or ``tf_keras``.
    """
    for configuration in _configurations(file):
        for layer, item in _find_items(configuration, "the model"):
            if code := _code_of(item, keras):
                raise ModelCodeError(
                    f"{file}: {layer} contains {code}, which loading the file would run",
                    "a model without code of its own",
                    "pass --trust-model-code (in a pipeline: trust_model_code=true) if you trust its origin, or "
                    "build the model with layers or a custom layer that is registered",
                )
            if path := foreign_path(item, file):
                raise ModelCodeError(
                    f"{file}: {layer} contains the path {path!r}, which loading the file would read",
                    "a model that contains its vocabularies",
                    "pass --trust-model-code (in a pipeline: trust_model_code=true) if you trust its origin, or "
                    "build the layer with a list of words (vocabulary=[...]) and save the model again",
                )


def _configurations(file: Path) -> Iterator[Configuration]:
    """Yield the configurations in a file: one, or for a SavedModel one per object."""
    if file.is_dir():
        metadata = importlib.import_module("tf_keras.protobuf.saved_metadata_pb2").SavedMetadata()
        metadata.ParseFromString((file / "keras_metadata.pb").read_bytes())
        for node in metadata.nodes:
            yield json.loads(node.metadata)
    elif file.suffix == ".keras":
        yield json.loads(read_entry(file, "config.json"))
    else:
        import h5py

        with h5py.File(file) as content:
            yield json.loads(content.attrs.get("model_config", "{}"))


def _find_items(item: Any, layer: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the mappings in a configuration, each with the name of its layer."""
    if isinstance(item, list):
        for element in item:
            yield from _find_items(element, layer)
    if not isinstance(item, dict):
        return
    config = item.get("config")
    if isinstance(config, dict) and isinstance(config.get("name"), str):
        layer = f"layer {config['name']!r}"
    yield layer, item
    for value in item.values():
        yield from _find_items(value, layer)


def _code_of(item: dict[str, object], keras: Any) -> str:
    """Return what code a mapping of a configuration contains or names; otherwise an empty text."""
    if item.get("class_name") == "__lambda__" or any(
        str(key).endswith("_type") and value == "lambda" for key, value in item.items()
    ):
        return "a Python lambda"
    if call := forbidden_call(item):
        return f"a call of {call}"
    module, name = item.get("module"), _name(item)
    is_named = "class_name" in item and isinstance(module, str) and not _is_registered(item, keras)
    return f"{module}.{name}" if is_named and _is_foreign(str(module), name, item) else ""


def _is_foreign(module: str, name: str, item: dict[str, object]) -> bool:
    """Return True for all but classes of Keras, and functions of the modules that layers use.

    Keras looks up a name with a dot, and an unregistered `registered_name`, among all that a module imports.
    """
    package = module.partition(".")[0]
    if module == "builtins":  # Keras means its own functions by that module
        return name.partition(".")[0] in vars(builtins)
    if package not in KERAS_PACKAGES:
        return _is_importable(package)
    kind = item["class_name"]
    if "." in name or item.get("registered_name") not in (None, name, kind):
        return True
    if kind == "function":
        return FUNCTIONS.fullmatch(module) is None
    return not name.lstrip("_")[:1].isupper() or name == "__typespec__" or "applications" in module


def foreign_path(item: dict[str, object], file: Path) -> str:
    """Return a path in a mapping that is not within the folder of the model; otherwise an empty text."""
    for key, value in item.items():
        if not isinstance(value, str) or not value:
            continue
        is_path = PATHS.fullmatch(key) or (value.startswith("/") and os.path.lexists(value))
        if is_path and not (file.is_dir() and Path(os.path.realpath(value)).is_relative_to(file.resolve())):
            return value
    return ""


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


def _name(item: dict[str, object]) -> str:
    """Return the name of a function or class of a module."""
    return str(item.get("config") if item.get("class_name") == "function" else item.get("class_name"))


def _is_importable(package: str) -> bool:
    """Return True for an installed package; Keras cannot call code of others."""
    try:
        spec = importlib.util.find_spec(package) if package else None
    except ValueError:  # it was not imported from a file: the program, or the user's module of `train`
        return package == "__main__"
    return spec is not None


def _is_registered(item: dict[str, object], keras: Any) -> bool:
    """Return True if Keras uses a registered object for this name; for a class only ``registered_name`` counts."""
    kind = item["class_name"]
    registered = item.get("registered_name", kind)
    names = [registered]
    if kind == "function":  # registered as PACKAGE>NAME
        names = [item.get("config")] + ([registered] if str(registered).endswith(f">{item.get('config')}") else [])
    return any(isinstance(name, str) and keras.saving.get_registered_object(name) is not None for name in names)
