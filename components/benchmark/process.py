"""The parent's side of one model's process: start it, ask it, and know how it ended."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from tfopt.artifacts import Model
from tfopt.child import how_it_ended, last_lines
from tfopt.serving import environment

# Each of these libraries reads its thread count once, when it is imported.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")

PATIENCE = 1800.0  # seconds for one answer: compiling a large model may take minutes, but some calls never return


class ModelFailed(Exception):  # noqa: N818  (a result, not an error of ours)
    """The model could not do what was asked; the text says why. Its process can be asked again."""


class ModelDied(ModelFailed):
    """The process ended; the text says how, with its last lines."""


class ModelProcess:
    """A fresh process for one model, pinned to some cores. Idle unless asked.

    Attributes:
        log: What it printed.
    """

    def __init__(self, model: Model, *, cores: Sequence[int], log: Path) -> None:
        """Start it; nothing is loaded yet."""
        ours, theirs = socket.socketpair()
        self.log = log
        command = [sys.executable, "-m", "tfopt.components.benchmark.worker", str(theirs.fileno())]
        with theirs, log.open("wb") as stream:
            self._process = subprocess.Popen(
                [*command, ",".join(map(str, cores)), model.uri],  # the model only to be seen in a list of processes
                env=_environment(len(cores)) | environment.read(model),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # for the scheduler; it ends with the pipe, not with a terminal
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        self._pipe = Connection(ours.detach())

    def ask(self, name: str, *arguments: Any) -> Any:
        """Let it call one method of `worker.Worker`, and return the answer.

        Raises:
            ModelFailed: When the call raised there; `ModelDied` when the process is gone.
        """
        try:
            self._pipe.send((name, arguments))
            if not self._pipe.poll(PATIENCE):
                self._process.kill()
                raise ModelDied(f"gave no answer to {name!r} in {PATIENCE:g} seconds, and was stopped")
            worked, answer = self._pipe.recv()
        except (EOFError, OSError):
            code = self._process.wait()
            said = last_lines(self.log)
            raise ModelDied(f"the process {how_it_ended(code)}" + (f"\n{said}" if said else "")) from None
        if not worked:
            raise ModelFailed(answer)
        return answer

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it at once; it holds nothing that would need saving."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()


def _environment(threads: int) -> dict[str, str]:
    return {
        **os.environ,
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "0",  # the only place where TensorFlow says what its build leaves unused
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # all models are alive together and must share the memory
    }
