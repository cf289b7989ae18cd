"""Test on a GPU that processes share its memory, that comparisons compute in float32, and the settings of training.

Each test works in a child process: this one sees no GPU (`conftest.py`).
"""

import os
import resource
import time
from pathlib import Path

import numpy as np
import pytest

from tests.components.test_train_settings import SETTINGS
from tests.components.train_modules import DIGITS, write
from tfopt.artifacts import Examples
from tfopt.components.profile_training.component import profile_training
from tfopt.components.train.auto_settings import choose_auto_settings, choose_batch_size
from tfopt.processes.preloaded_processes import preloading
from tfopt.processes.subprocess_call import run_in_child
from tfopt.tensorrt.machine import run_nvidia_smi

pytestmark = pytest.mark.gpu


def memory_used() -> int:
    """Return the used memory of all GPUs in MiB."""
    rows = run_nvidia_smi("--query-gpu=memory.used", "--format=csv,noheader,nounits").splitlines()
    return sum(int(row) for row in rows)


def product_error(enabled: bool) -> float:
    """Return the largest relative error of a product of float32 on the GPU, in a comparison or as it is served."""
    import contextlib

    import tensorflow as tf

    from tfopt.measurement.parity import without_tensor_float_32

    first, second = (np.random.default_rng(seed).normal(size=(512, 512)).astype(np.float32) for seed in (0, 1))
    exact = first.astype(np.float64) @ second.astype(np.float64)
    with contextlib.nullcontext() if enabled else without_tensor_float_32(), tf.device("GPU:0"):
        return float(np.abs(tf.matmul(first, second).numpy() - exact).max() / np.abs(exact).max())


def memory_of_one_product() -> int:
    """Return the memory that a process adds to the used memory of the GPUs while it has computed a product."""
    before = memory_used()
    product_error(enabled=True)
    return memory_used() - before


def product_error_with_override() -> float:
    """Return the error in a process such as `SubprocessRuntime` starts."""
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    return product_error(enabled=True)


@pytest.mark.parametrize("forks", [False, True])
def test_a_process_takes_the_memory_that_it_needs_and_returns_it(here, forks):
    before = memory_used()
    with preloading(is_run=forks):
        assert run_in_child(memory_of_one_product, doing="computing") < 4096  # CUDA's own, and cuBLAS's workspace
    time.sleep(1)
    assert memory_used() < before + 512


def test_comparisons_do_not_round_to_10_bits(here):
    if here.compute_capability < "8":
        pytest.skip("no TensorFloat-32 before Ampere")
    assert run_in_child(product_error, True, doing="computing") > 1e-5
    assert run_in_child(product_error, False, doing="computing") < 1e-6
    with preloading(is_run=True):  # the variable is read after the fork
        assert run_in_child(product_error_with_override, doing="computing") < 1e-6


@pytest.mark.parametrize("search", ["largest", "fastest"])
def test_the_search_for_a_batch_size_runs_on_the_gpu_and_leaves_it(here, digits_examples, tmp_path, caplog, search):
    before = memory_used()
    settings = SETTINGS.__class__(batch_size=0, batch_search=search, gpu_memory_mb=2000)
    with caplog.at_level("INFO", "tfopt"):
        chosen = choose_batch_size(settings, Examples(digits_examples), write(tmp_path / "m.py", DIGITS))
    assert chosen.batch_size >= 8, caplog.text
    time.sleep(1)
    assert memory_used() < before + 512
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_auto_tries_both_kinds_of_16_bits_and_the_log_has_the_cost_of_determinism(
    here, digits_examples, tmp_path, caplog
):
    settings = SETTINGS.__class__(precision="auto", jit_compile="auto")
    with caplog.at_level("INFO", "tfopt"):
        choose_auto_settings(settings, Examples(digits_examples), write(tmp_path / "m.py", DIGITS))
    assert "XLA is not tried" in caplog.text and "--no-deterministic:" in caplog.text
    assert "mixed_bfloat16" in caplog.text or here.compute_capability < "8"


def test_a_profile_has_the_times_of_the_gpu(here, digits_examples, tmp_path):
    module: Path = write(tmp_path / "m.py", DIGITS)
    plan = profile_training(str(digits_examples), str(module), str(tmp_path / "plan"), seconds=0.8, rounds=8)["plan"]
    report = plan.path.joinpath(plan.file).read_text()
    assert "GPU" in report
    assert any(name in report for name in ("the GPU computes", "kernel launches", "copies between", "fixed cost"))
