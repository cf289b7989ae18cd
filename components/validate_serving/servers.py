"""A model as its server holds it: one way to ask for each kind."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.validate_serving import model_server, triton_server
from tfopt.errors import ComponentError, first_line, nearest
from tfopt.graph.comparison import DEFAULT
from tfopt.runtimes import Arrays
from tfopt.serving.layouts import entry

Client = Callable[[Arrays], Mapping[str, NDArray[Any]]]
ONE_FOR_ALL = ("saved_model", "keras", "onnx")  # runtimes whose `call` may be used by several threads at once
NAMES = {
    "saved_model": "TensorFlow",
    "keras": "Keras",
    "tflite": "LiteRT",
    "onnx": "ONNX Runtime",
    "openvino": "OpenVINO",
    "tensorrt": "TensorRT",
}


@dataclass(frozen=True)
class Server:
    """A model that was loaded.

    Attributes:
        name: What loaded it.
        inputs: The signature ``serving_default``, as it was loaded.
        outputs: The same, of the answers.
        client: Returns what one thread asks by.
    """

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    client: Callable[[], Client]


@contextlib.contextmanager
def serve(model: Model, layout: str, root: Path, binary: str | None, until: float) -> Iterator[Server]:
    """Load version 1 below ``root`` as the server of the layout does.

    Args:
        model: As it was given.
        layout: How it was laid out below ``root``.
        root: The folder called as the model is.
        binary: The server of the layout itself, if that is to serve it.
        until: When it must serve it, by `time.monotonic`.

    Raises:
        ComponentError: When it does not load.
    """
    if binary and layout == "triton":
        with triton_server.running(binary, root, until) as triton:
            yield Server(triton.server(), *triton.signature(), triton.client)
    elif binary:
        with model_server.running(binary, root, until) as remote:
            yield Server("TensorFlow Serving", *remote.signature(), lambda: remote.answer)
    elif model.format == "saved_model" and layout != "plain":
        with _session(entry(model, layout, root / "1")) as server:
            yield server
    else:
        place = entry(model, layout, root / "1")
        with runtimes.load(place) as first:
            shared = model.format in ONE_FOR_ALL
            yield Server(
                NAMES.get(model.format, model.format),
                first.inputs,
                first.outputs,
                lambda: first.call if shared else runtimes.load(place).run,
            )


@contextlib.contextmanager
def _session(model: Model) -> Iterator[Server]:
    """A graph and a session with the tag serve: how the C++ loader of TensorFlow Serving and of Triton runs it."""
    import tensorflow as tf

    session = tf.compat.v1.Session(graph=tf.Graph())  # not entered: other models run eagerly beside it
    try:
        loaded = tf.compat.v1.saved_model.load(session, [tf.saved_model.SERVING], str(model.path))
        signatures = loaded.signature_def
        if DEFAULT not in signatures:
            raise ComponentError(f"no signature {DEFAULT!r}", "one of its signatures", nearest(DEFAULT, signatures))
        given, wanted = signatures[DEFAULT].inputs, signatures[DEFAULT].outputs
        names = list(given)
        call = session.make_callable(
            {name: info.name for name, info in wanted.items()}, [given[name].name for name in names]
        )
    except ComponentError:
        raise
    except Exception as error:
        raise ComponentError(
            f"{model.path.name}: {first_line(error)}", "a SavedModel with the tag serve", "export it again"
        ) from error
    try:
        yield Server(
            "a TensorFlow session, as in TensorFlow Serving and Triton",
            model_server.specs(given),
            model_server.specs(wanted),
            lambda: lambda arrays: call(*(arrays[name] for name in names)),
        )
    finally:
        session.close()
