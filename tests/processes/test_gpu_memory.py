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


# Daily, the user's decision is seen in the program below.
@pytest.mark.parametrize("value", [None, pytest.param("false", marks=pytest.mark.nightly)])
def test_every_process_lets_gpu_memory_grow_unless_the_user_decides_otherwise(value):
    variables = {name: text for name, text in os.environ.items() if name != GROWTH} | ({GROWTH: value} if value else {})
    command = [sys.executable, "-c", PROCESSES]
    printed = subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout
    assert printed.split() == [value or "true"] * 3


@pytest.mark.parametrize(
    ("module", "value"),
    [
        ("tfopt.cli.main", None),
        ("tfopt.run", None),
        ("tfopt.processes.preloaded_processes", None),
        ("tfopt.processes.preloaded_processes", "false"),
    ],
)
def test_the_variable_is_set_before_a_program_of_tfopt_imports_tensorflow(module, value):
    program = f"import sys, os; import {module}; print(os.environ[{GROWTH!r}], 'tensorflow' in sys.modules)"
    variables = {name: text for name, text in os.environ.items() if name != GROWTH} | ({GROWTH: value} if value else {})
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout
    assert printed.split() == [value or "true", "False"]


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


RUN = """
import sys
from pathlib import Path
from tensorflow.python.eager import context
from tfopt.component import find
from tfopt.processes.preloaded_processes import preloading
model, examples, folder = sys.argv[1:]
models = {name: f"{folder}/{name}" for name in ("folded", "optimized", "cast", "compiled", "configured")}
compared = {"baseline": model, "candidates": [*models.values()], "examples": examples}
reports = {"evaluation": f"{folder}/evaluation", "benchmark": f"{folder}/benchmark"}
steps = {
    "fold_batch_norm": {"model": model, "folded": models["folded"], "examples": examples},
    "optimize_graph": {"model": model, "optimized": models["optimized"], "examples": examples},
    "cast_precision": {"model": model, "cast": models["cast"], "examples": examples},
    "compile_xla": {"model": models["cast"], "compiled": models["compiled"], "batch_sizes": ["1"]},
    "configure_runtime": {"model": models["cast"], "configured": models["configured"]},
    "inspect_model": {"model": models["cast"], "inspection": f"{folder}/inspection"},
    "evaluate": {**compared, "evaluation": reports["evaluation"]},
    "benchmark": {**compared, "benchmark": reports["benchmark"], "seconds": 0.2, "batch_sizes": ["1"]},
    "select_model": {
        "baseline": model, "candidates": [*models.values()], **reports, "selected": f"{folder}/selected",
        "decision": f"{folder}/decision", "blessing": f"{folder}/blessing",
    },
    "validate_serving": {"model": models["cast"], "infra_blessing": f"{folder}/infra", "seconds": 0.1},
}
with preloading(is_run=True):
    for name, arguments in steps.items():
        find(name)(**arguments)
        print(name, context.context()._initialized, flush=True)
"""


@pytest.mark.nightly  # ten steps
def test_the_process_of_a_run_uses_no_device(digits_model, digits_examples, tmp_path):
    command = [sys.executable, "-c", RUN, str(digits_model), str(digits_examples), str(tmp_path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    used = dict(line.rsplit(" ", 1) for line in printed if line.endswith(("True", "False")))
    assert len(used) == 10 and set(used.values()) == {"False"}, used


def test_a_process_that_reads_sees_no_gpu():
    assert run_in_child(_gpus_configured_after_hiding, doing="hiding") == []


def _gpus_configured_after_hiding() -> list[str]:
    import tensorflow as tf

    from tfopt.training.compute.device_memory import hide_gpus

    hide_gpus()
    hide_gpus()
    return [device.name for device in tf.config.get_visible_devices("GPU")]
