"""Loaded models with one client interface: a real server, a TensorFlow session, or a runtime."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.formats import FORMATS
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.validate_serving import model_server, triton_server
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.runtimes import Arrays
from tfopt.serving.layouts import open_version

Client = Callable[[Arrays], Mapping[str, NDArray[Any]]]


@dataclass(frozen=True)
class Server:
    """A loaded model.

    Attributes:
        name: The server or runtime.
        inputs: The inputs of the loaded signature.
        outputs: Its outputs.
        client: Returns a function for one thread that sends requests.
    """

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    client: Callable[[], Client]


@contextlib.contextmanager
def serve(model: Model, layout: str, root: Path, program: str | None, deadline: float) -> Iterator[Server]:
    """Load version 1 below ``root`` as the server of the layout does.

    Args:
        model: The original model.
        layout: The layout of the folder.
        root: The folder, with the name of the model.
        program: The server of the layout, if it is to serve the model.
        deadline: The time, by `time.monotonic`, when it must serve the model.

    Raises:
        ComponentError: If it does not load.
    """
    if program and layout == "triton":
        with triton_server.run_server(program, root, deadline) as triton:
            yield Server(triton.server(), *triton.signature(), triton.client)
    elif program:
        with model_server.run_server(program, root, model.signature, deadline) as client:
            yield Server("TensorFlow Serving", *client.signature(), lambda: client.predict)
    elif model.format == "saved_model" and layout != "plain":
        with _session(open_version(model, layout, root / "1"), model.signature) as server:
            yield server
    else:
        version = open_version(model, layout, root / "1")
        format = FORMATS[model.format]
        version.signature = model.signature
        with runtimes.load(version) as first:
            yield Server(
                format.runtime,
                first.inputs,
                first.outputs,
                lambda: first.call if format.concurrent else runtimes.load(version).run,
            )


@contextlib.contextmanager
def _session(model: Model, signature: str) -> Iterator[Server]:
    """Load a graph in a session with the tag serve, as the C++ loader of TensorFlow Serving and of Triton does."""
    import tensorflow as tf

    session = tf.compat.v1.Session(graph=tf.Graph())  # not entered: other models run eagerly in this process
    try:
        loaded = tf.compat.v1.saved_model.load(session, [tf.saved_model.SERVING], str(model.path))
        signatures = loaded.signature_def
        if signature not in signatures:
            raise ComponentError(f"no signature {signature!r}", "one of its signatures", nearest(signature, signatures))
        inputs, outputs = signatures[signature].inputs, signatures[signature].outputs
        names = list(inputs)
        call = session.make_callable(
            {name: info.name for name, info in outputs.items()}, [inputs[name].name for name in names]
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
            model_server.tensor_specs(inputs),
            model_server.tensor_specs(outputs),
            lambda: lambda arrays: call(*(arrays[name] for name in names)),
        )
    finally:
        session.close()
