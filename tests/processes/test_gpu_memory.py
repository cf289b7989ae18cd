"""Test without a GPU that its memory grows in every process of tfopt, and that processes that only read see no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import write_examples
from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.benchmark.inputs import Inputs
from tfopt.processes.preloaded_processes import preloading
from tfopt.processes.subprocess_call import run_in_child

GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
PROCESSES = """
import os, tfopt
from tfopt.processes.preloaded_processes import preloading
from tfopt.processes.subprocess_call import run_in_child
print(os.environ["TF_FORCE_GPU_ALLOW_GROWTH"])
print(run_in_child(os.getenv, "TF_FORCE_GPU_ALLOW_GROWTH", doing="looking"))
with preloading(is_run=True):
    print(run_in_child(os.getenv, "TF_FORCE_GPU_ALLOW_GROWTH", doing="looking"))
"""


@pytest.mark.parametrize("value", [None, "false"])
def test_every_process_lets_gpu_memory_grow_unless_the_user_decides_otherwise(value):
    variables = {name: text for name, text in os.environ.items() if name != GROWTH} | ({GROWTH: value} if value else {})
    command = [sys.executable, "-c", PROCESSES]
    printed = subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout
    assert printed.split() == [value or "true"] * 3


@pytest.mark.parametrize("module", ["tfopt.cli.main", "tfopt.run", "tfopt.processes.preloaded_processes"])
def test_the_variable_is_set_before_a_program_of_tfopt_imports_tensorflow(module):
    program = f"import sys, os; import {module}; print(os.environ[{GROWTH!r}], 'tensorflow' in sys.modules)"
    variables = {name: text for name, text in os.environ.items() if name != GROWTH}
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout
    assert printed.split() == ["true", "False"]


def test_the_process_of_a_benchmark_uses_no_device_to_read_examples(tmp_path):
    write_examples(
        tmp_path / "examples" / "Split-eval" / "data_tfrecord-00000-of-00001.gz", {"x": np.ones((5, 3), np.float32)}
    )
    with preloading():
        assert run_in_child(_devices_used_by_reading, str(tmp_path / "examples"), doing="reading") == (False, (4, 3))


def _devices_used_by_reading(examples: str) -> tuple[bool, tuple[int, ...]]:
    """Return whether this process has initialized the devices of TensorFlow, and the shape of what it read."""
    from tensorflow.python.eager import context

    files = Examples(Path(examples)).split("eval")
    folder = Path(examples).parent
    file = Inputs(files, records=4, seed=0, folder=folder).file({"x": TensorSpec("float32", (None, 3))})
    return context.context()._initialized, np.load(file, allow_pickle=True)["x"].shape


def test_a_process_that_reads_sees_no_gpu():
    assert run_in_child(_gpus_configured_after_hiding, doing="hiding") == []


def _gpus_configured_after_hiding() -> list[str]:
    import tensorflow as tf

    from tfopt.training.compute.device_memory import hide_gpus

    hide_gpus()
    hide_gpus()
    return [device.name for device in tf.config.get_visible_devices("GPU")]
