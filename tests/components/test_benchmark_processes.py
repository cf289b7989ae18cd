"""Test the processes of `benchmark`: crashes, hangs and disturbances are reported, and all processes end."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from tests.components.workloads import may_raise_priority, run, tflite, workers
from tests.process_tree import has_ended, marked, wait_until
from tfopt.artifacts import Model
from tfopt.artifacts.models import PREPROCESSING
from tfopt.components.benchmark import interleaving, measured_model, model_process
from tfopt.components.benchmark.machine_conditions import choose_cores, describe_tensorflow
from tfopt.components.benchmark.model_process import ModelProcess, RuntimeConfig, RuntimeProcesses
from tfopt.components.configure_runtime.component import configure_runtime
from tfopt.errors import ComponentError
from tfopt.processes import worker_process
from tfopt.processes.fork_server import ForkedWorker
from tfopt.processes.worker_process import WorkerDied
from tfopt.runtimes.environment import ONEDNN, add_variables


@pytest.fixture(autouse=True)
def _own_runtimes(shared_runtimes, monkeypatch) -> None:
    """Start new processes in each benchmark, and end them with it, as outside the tests."""
    shared_runtimes.end()
    monkeypatch.setattr(model_process, "RuntimeProcesses", RuntimeProcesses)


@pytest.mark.nightly  # daily: tests/measurement
def test_a_busy_process_on_the_core_adds_a_note_and_gives_no_verdict(models, tmp_path, monkeypatch):
    monkeypatch.setattr(measured_model, "MOST_WAITED", 0.05)
    with busy_process(choose_cores(1)[0]):
        content = run(models["middle"], [models["middle"]], tmp_path / "out", min_effect=0.2, batch_sizes=["1"])
    for row in content["models"]:
        assert row["latency"]["1"]["disturbed"] > 0.2
        assert row["latency"]["1"]["stable"] is False
        assert any("other processes had its cores" in note for note in row["notes"])
    assert {ratio["verdict"] for ratio in content["models"][1]["speedup"].values()} == {"unstable"}


@pytest.mark.nightly  # daily: test_benchmark_memory_groups.py
def test_models_that_are_loaded_in_turns_of_one_candidate_are_measured_as_usual(models, tmp_path, monkeypatch):
    monkeypatch.setattr(interleaving, "GROUP_BYTES", 0)
    candidates = [models["large"], models["small"]]
    content = run(models["middle"], candidates, tmp_path / "out", seconds=0.4, rounds=8, batch_sizes=["1"])
    baseline, large, small = content["models"]
    assert [row["rounds"] for row in (baseline, large, small)] == [{"1": 8}] * 3
    assert large["speedup"]["1"]["value"] < 1 < small["speedup"]["1"]["value"]
    assert large["over_fastest"]["1"]["verdict"] == "slower" and "over_fastest" not in small
    assert not workers()


def test_a_killed_candidate_is_a_row_with_its_signal(models, tmp_path):
    with killed_in_second_round(1):
        content = run(models["small"], [models["large"], models["middle"]], tmp_path / "out", seconds=0.6)
    baseline, killed, other = content["models"]
    assert "was killed by SIGKILL" in killed["error"]
    assert killed["latency"] == killed["throughput"] == killed["speedup"] == {}
    assert killed["sizes"]["raw"] == models["large"].stat().st_size
    assert baseline["error"] is None
    assert set(other["speedup"]) == {"1", "32"}
    assert set(pq.read_table(tmp_path / "out" / "samples.parquet")["model"].to_pylist()) == {
        "small.tflite",
        "middle.tflite",
    }
    assert not workers()


def test_a_killed_baseline_is_an_error_and_leaves_no_files_or_processes(models, tmp_path):
    with killed_in_second_round(0), pytest.raises(ComponentError) as refusal:
        run(models["small"], [models["large"]], tmp_path / "out", seconds=1.2)
    assert "small.tflite" in refusal.value.received
    assert "was killed by SIGKILL" in refusal.value.received
    assert "baseline" in refusal.value.expected
    assert not list(tmp_path.iterdir())
    assert not workers()


def test_a_model_whose_call_never_returns_is_stopped_and_is_a_row(models, tmp_path, monkeypatch):
    import tensorflow as tf

    def endless(x):
        return {"y": tf.while_loop(lambda y: tf.reduce_all(y == y), lambda y: (tf.abs(y),), [x])[0]}

    model = tflite(tmp_path / "endless.tflite", endless, tf.TensorSpec([1, 64], name="x"))
    monkeypatch.setattr(worker_process, "TIMEOUT_S", 4.0)
    content = run(models["small"], [model], tmp_path / "out", batch_sizes=["1"])
    assert "gave no answer to 'prepare' in 4 seconds" in content["models"][1]["error"]
    assert content["models"][0]["error"] is None
    assert not workers()


@pytest.mark.nightly
def test_models_of_one_format_and_settings_are_forked_from_the_same_process(models, tmp_path):
    small, large = models["small"], models["large"]
    configured, preprocessed = tmp_path / "configured", tmp_path / "preprocessed"
    configure_runtime(model=small.with_suffix(""), configured=configured, onednn="on")
    shutil.copytree(small.with_suffix(""), preprocessed / PREPROCESSING)
    shutil.copy(small, preprocessed / "model.tflite")
    lite, plain, on, both = (
        RuntimeConfig.of(Model(path)) for path in (small, small.with_suffix(""), configured, preprocessed)
    )
    assert plain == RuntimeConfig.of(Model(large.with_suffix("")))
    assert len({lite, plain, on, both}) == 4
    with RuntimeProcesses(choose_cores(1), tmp_path) as processes:
        assert processes.of(Model(small)) is processes.of(Model(large))
        assert processes.of(Model(small)) is not processes.of(Model(preprocessed))
        assert len(workers()) == 2
        imported = []
        for path in (small, preprocessed):  # the runtime of a preprocessing is imported before the forks, too
            with ForkedWorker(processes.of(Model(path)), tmp_path / "log") as fork:
                imported.append("tensorflow" in fork.call("facts"))
    assert imported == [False, True]


@pytest.mark.nightly  # daily: oneDNN's variable, in test_configure_runtime.py
def test_variables_that_no_import_reads_are_set_in_the_fork_of_their_model(models, tmp_path, monkeypatch):
    """Give a model flags of XLA with a mistake, which TensorFlow ends for when it reads them.

    Imports read the variables of the caller: those of oneDNN.
    """
    monkeypatch.setenv(ONEDNN, "0")
    small, flags = models["small"].with_suffix(""), tmp_path / "flags"
    shutil.copytree(small, flags)
    add_variables(Model(flags).saved_model, {"TF_XLA_FLAGS": "--no_flag"})
    assert RuntimeConfig.of(Model(flags)) == RuntimeConfig.of(Model(small))
    with RuntimeProcesses(choose_cores(1), tmp_path) as processes:
        for path, is_wrong in ((flags, True), (small, False)):
            with ModelProcess(Model(path), processes, tmp_path / "log") as process:
                process.renew()
                with pytest.raises(WorkerDied) if is_wrong else contextlib.nullcontext():
                    process.call("load", str(path), "serving_default", 1)
                    onednn = describe_tensorflow(process.call("facts")["tensorflow"], process.read_log())["onednn"]
                    assert (onednn["enabled"], onednn["TF_ENABLE_ONEDNN_OPTS"]) == (False, "0")
    assert "Unknown flag in TF_XLA_FLAGS: --no_flag" in (tmp_path / "log").read_text()


@pytest.mark.nightly  # daily: tests/kill
@pytest.mark.parametrize("kind", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGKILL])
def test_an_interrupted_benchmark_leaves_no_process_and_no_output(models, tmp_path, kind):
    words = ["--baseline", models["small"], "--candidates", models["large"], "--benchmark", tmp_path / "out"]
    command = [sys.executable, "-m", "tfopt.run", "benchmark", *words, "--seconds", "60"]
    mark = "MEASURED_FOR", str(tmp_path)
    environment = os.environ | dict([mark])
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: simultaneous_workers(process.pid)) == 3 * [(1, "1", may_raise_priority())]
        assert len(marked(*mark)) > 1  # the check below would find them
        process.send_signal(kind)
        assert process.wait(20) != 0
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not marked(*mark), 20)
    assert not (tmp_path / "out").exists()
    assert kind == signal.SIGKILL or not list(tmp_path.iterdir())


def simultaneous_workers(command: int) -> list[tuple[int, str | None, bool]] | None:
    """Return cores, threads and priority of a runtime and two models if all run; models restart in each round."""
    with contextlib.suppress(psutil.NoSuchProcess):
        own = workers(command)
        settings = [(len(one.cpu_affinity()), one.environ().get("OMP_NUM_THREADS"), one.nice() == -20) for one in own]
        if len(own) == 3 and not any(has_ended(one) for one in own):
            return settings
    return None


@contextlib.contextmanager
def killed_in_second_round(number: int):
    """Kill the process of a model, by its number, in the second round, as a machine without free memory would."""
    seen: list[psutil.Process] = []

    def kill_third() -> bool:
        seen.extend(process for process in processes_with_log(f"{number}.log") if process not in seen)
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended: the next one is killed
            if len(seen) >= 3:
                seen[-1].kill()
                return True
        return False

    thread = threading.Thread(target=wait_until, args=[kill_third])
    thread.start()
    yield
    thread.join()


def processes_with_log(log: str) -> list[psutil.Process]:
    """Return the processes of models that write to a log of that name."""
    return [process for process in workers() if Path(f"/proc/{process.pid}/fd/1").resolve().name == log]


@contextlib.contextmanager
def busy_process(core: int):
    """Run a process that keeps a core busy, with the priority of a model."""
    privileged = may_raise_priority()
    code = f"import os; os.sched_setaffinity(0, [{core}])" + "; os.setpriority(os.PRIO_PROCESS, 0, -20)" * privileged
    process = subprocess.Popen([sys.executable, "-c", f"{code}\nwhile True: pass"], start_new_session=True)
    if privileged and (group := Path(f"/proc/{process.pid}/autogroup")).exists():
        group.write_text("-20")
    try:
        yield
    finally:
        process.kill()
        process.wait()
