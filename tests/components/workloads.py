"""Helpers of the tests of `benchmark`: LiteRT models, a short run, and the measuring processes."""

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil

from tfopt.components.benchmark.component import benchmark

QUICK = {"seconds": 0.2, "rounds": 8}


def tflite(file: Path, function, *specs) -> Path:
    """Convert a function of named tensors to a LiteRT file with a serving signature."""
    import tensorflow as tf

    module = tf.Module()
    module.f = tf.function(function, input_signature=specs)
    concrete = module.f.get_concrete_function()
    tf.saved_model.save(module, str(file.with_suffix("")), signatures=concrete)
    file.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(file.with_suffix(""))).convert())
    return file


class LiteModels(dict[str, Path]):
    """LiteRT files by name, each made on first use."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, name: str) -> Path:
        import tensorflow as tf

        def dense(width):
            rng = np.random.default_rng(width)
            inner, outer = (tf.constant(rng.normal(size=size), tf.float32) for size in ((64, width), (width, 8)))
            return lambda x: {"y": tf.nn.relu(x @ inner) @ outer}

        free, fixed = tf.TensorSpec([None, 64], name="x"), tf.TensorSpec([2, 64], name="x")
        left, right = (tf.TensorSpec([None, 3], name=name) for name in ("left", "right"))
        function, *specs = {
            "small": (dense(512), free),
            "middle": (dense(2048), free),
            "large": (dense(8192), free),
            "fixed": (dense(64), fixed),
            "nan": (lambda x: {"y": tf.math.log(x - 2.0)}, free),
            "pair": (lambda left, right: {"sum": left + right, "product": left * right}, left, right),
        }[name]
        self[name] = tflite(self._folder / f"{name}.tflite", function, *specs)
        return self[name]


def run(baseline: Path, candidates: list[Path], output: Path, **others) -> dict:
    return benchmark(baseline=baseline, candidates=candidates, benchmark=output, **QUICK | others)["benchmark"].read()


def workers(command: int | None = None) -> list[psutil.Process]:
    """Return the measuring processes of this process or of a command: those of runtimes, and their forks."""
    processes = []
    for process in psutil.Process(command).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "tfopt.components.benchmark.worker" in process.cmdline():
                processes.append(process)
    return processes


def may_raise_priority() -> bool:
    """Return True if a process may raise its priority here, which needs privileges."""
    command = "import os; os.setpriority(os.PRIO_PROCESS, 0, -20)"
    return not subprocess.run([sys.executable, "-c", command], stderr=subprocess.DEVNULL).returncode
