"""Loaded models with one client interface: a real server, a TensorFlow session, or a runtime.

Servers are those of tfopt, and the entry points ``tfopt.servers`` of other packages.
"""

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.formats import FORMATS
from tfopt.artifacts.tensor_spec import TensorSpec, are_compatible
from tfopt.data.text_inputs import tensor_specs
from tfopt.declaration.extensions import Extensions
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.processes.exit_status import last_lines
from tfopt.processes.isolation import Limits, limited_children, limits_of_children
from tfopt.processes.parent_death import bound_command
from tfopt.runtimes import Arrays, Runtime
from tfopt.serving.layouts import open_version

Client = Callable[[Arrays], Mapping[str, NDArray[Any]]]


@dataclass(frozen=True)
class Server:
    """A signature as a server or runtime has loaded it; ``client`` returns a function that one thread calls."""

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    client: Callable[[], Client]


class FolderSettings(Protocol):
    """Settings that the files next to the versions depend on: the parameters of `validate_serving` with these names."""

    @property
    def destination(self) -> str | None: ...  # noqa: D102
    @property
    def batch_size(self) -> int: ...  # noqa: D102
    @property
    def max_batch_size(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class ServerProgram:
    """A model server that runs as a process of its own, as an entry point names it."""

    # Returns the path of the program; None if this machine lacks it, or what it needs for a format.
    find_program: Callable[[str], str | None]
    # Starts the program on the folder with the versions of a model, whose name is that of the model, for its signature;
    # ready at a time of `time.monotonic` at the latest, and stopped at the end.
    run: Callable[[str, Path, str, float], AbstractContextManager[Server]]
    # Writes what the server reads next to the versions, and returns what is wrong with it; also without the program.
    check_folder: Callable[[Model, Path, Runtime, FolderSettings], list[str]] = lambda model, root, expected, test: []


# By LAYOUT.FORMAT, or by layout.
PROGRAMS = Extensions(
    "tfopt.servers",
    ServerProgram,
    {
        "tf_serving": "tfopt.serving.model_server.PROGRAM",
        "triton": "tfopt.serving.triton_server.PROGRAM",
    },
)


def find_server(layout: str, format: str) -> ServerProgram | None:
    """Return the server of a layout and format; None if none is known."""
    name = next((name for name in (f"{layout}.{format}", layout) if name in PROGRAMS), None)
    return PROGRAMS[name] if name else None


def limit_served_models(*served: tuple[str, str]) -> AbstractContextManager[None]:
    """Let child processes write to no output, as a model could bless itself, and connect if a server runs.

    ``served`` are the layout and format of each model.
    """
    limits = limits_of_children()
    servers = [(find_server(layout, format), format) for layout, format in served]
    has_server = any(server is not None and server.find_program(format) is not None for server, format in servers)
    return limited_children(limits and Limits((), tcp=has_server))


@contextlib.contextmanager
def serve(model: Model, layout: str, root: Path, deadline: float) -> Iterator[Server]:
    """Load version 1 below ``root`` as the server of the layout does, with that server if this machine has it.

    Raises:
        ComponentError: If it does not load.
    """
    server = find_server(layout, model.format)
    if server and (program := server.find_program(model.format)):
        with server.run(program, root, model.signature, deadline) as running:
            yield running
    elif model.format == "saved_model" and layout != "plain":
        with _session(open_version(model, layout, root / "1"), model.signature) as loaded:
            yield loaded
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


def compare_signatures(
    expected: Runtime | Server, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
) -> list[str]:
    """Return the differences between the signature of a model and another one as it is served, one line each."""
    differences = []
    for side, ours, theirs in (("input", expected.inputs, inputs), ("output", expected.outputs, outputs)):
        if set(ours) != set(theirs):
            differences.append(f"{side}s {', '.join(sorted(theirs))} are served, not {', '.join(sorted(ours))}")
            continue
        differences += [
            f"{side} {name!r} is served as {theirs[name]}, not {spec}"
            for name, spec in ours.items()
            if not are_compatible(spec, theirs[name])
        ]
    return differences


@contextlib.contextmanager
def _session(model: Model, signature: str) -> Iterator[Server]:
    """Load a graph in a session with the tag serve, as the C++ loader of TensorFlow Serving and of Triton does."""
    import tensorflow as tf

    # The session is not entered: other models run eagerly in this process.
    with contextlib.closing(tf.compat.v1.Session(graph=tf.Graph())) as session:
        try:
            signatures = tf.compat.v1.saved_model.load(session, [tf.saved_model.SERVING], str(model.path)).signature_def
            if signature not in signatures:
                expected, fix = "one of its signatures", nearest(signature, signatures)
                raise ComponentError(f"no signature {signature!r}", expected, fix)
            inputs, outputs = signatures[signature].inputs, signatures[signature].outputs
            fetched = {name: info.name for name, info in outputs.items()}
            call = session.make_callable(fetched, [info.name for info in inputs.values()])
        except ComponentError:
            raise
        except Exception as error:
            received = f"{model.path.name}: {first_line(error)}"
            raise ComponentError(received, "a SavedModel with the tag serve", "export it again") from error
        yield Server(
            "a TensorFlow session, as in TensorFlow Serving and Triton",
            tensor_specs(inputs),
            tensor_specs(outputs),
            lambda: lambda arrays: call(*(arrays[name] for name in inputs)),
        )


@contextlib.contextmanager
def start_server(*command: str, not_ready: Callable[[], str | None], deadline: float) -> Iterator[None]:
    """Start a server, wait until it serves the model, and stop it at the end.

    Until the deadline, by `time.monotonic`, ``not_ready`` must return None, and before the reason why it does not serve
    the model yet.

    Raises:
        ComponentError: If it ends or does not serve the model in time, with its last lines.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            bound_command(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            while (reason := not_ready()) is not None:
                if process.poll() is not None or time.monotonic() > deadline:
                    received = (
                        f"{Path(command[0]).name} does not serve it: {reason}\n"
                        f"{last_lines(Path('/proc/self/fd', str(log.fileno())))}"
                    )
                    raise ComponentError(received, "a version that becomes available", "see its last lines above")
                time.sleep(0.1)
            yield
        finally:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])
