"""Models of more and less work, measured in processes that can be found, for the tests of `benchmark`."""

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil

from tfopt.components.benchmark.component import benchmark

QUICK = {"seconds": 0.4, "rounds": 8}


def tflite(file: Path, function, *specs) -> Path:
    """Convert a function of named tensors to a file with the signature of a server."""
    import tensorflow as tf

    module = tf.Module()
    module.f = tf.function(function, input_signature=specs)
    concrete = module.f.get_concrete_function()
    tf.saved_model.save(module, str(file.with_suffix("")), signatures=concrete)
    file.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(file.with_suffix(""))).convert())
    return file


def run(baseline: Path, candidates: list[Path], output: Path, **others) -> dict:
    return benchmark(baseline=baseline, candidates=candidates, benchmark=output, **QUICK | others)["benchmark"].read()


def workers(command: int | None = None) -> list[psutil.Process]:
    """The processes that measure models now for this process, or for another: those of runtimes, and their forks."""
    found = []
    for process in psutil.Process(command).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "tfopt.components.benchmark.worker" in process.cmdline():
                found.append(process)
    return found


def may_go_first() -> bool:
    """Whether a process may raise its priority here: not without privileges."""
    command = "import os; os.setpriority(os.PRIO_PROCESS, 0, -20)"
    return not subprocess.run([sys.executable, "-c", command], stderr=subprocess.DEVNULL).returncode
