"""The processes of `benchmark`: one that dies, hangs or is disturbed is told of, and none is left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from tests.components.workloads import may_go_first, run, tflite, workers
from tests.process_tree import has_ended, marked, wait_until
from tfopt.artifacts import Model
from tfopt.components.benchmark.model_environment import cores
from tfopt.components.benchmark.model_process import Origins
from tfopt.components.configure_runtime.component import configure_runtime
from tfopt.errors import ComponentError
from tfopt.measurement.speedup import speedup


def test_a_rival_on_the_core_is_noted_and_makes_no_verdict(models, tmp_path):
    with a_rival(cores(1)[0]):
        content = run(models["middle"], [models["middle"]], tmp_path / "out", seconds=1.0, rounds=15, min_effect=0.2)
    for row in content["models"]:
        assert row["latency"]["1"]["disturbed"] > 0.2
        assert row["latency"]["1"]["stable"] is False
        assert any("other processes had its cores" in note for note in row["notes"])
    assert {found["verdict"] for found in content["models"][1]["speedup"].values()} == {"within noise"}


def test_a_killed_candidate_is_a_row_with_its_end(models, tmp_path):
    with killed_in_its_turns(1):
        content = run(models["small"], [models["large"], models["middle"]], tmp_path / "out", seconds=2.0)
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


def test_a_killed_baseline_is_an_error_and_leaves_nothing(models, tmp_path):
    with killed_in_its_turns(0), pytest.raises(ComponentError) as refusal:
        run(models["small"], [models["large"]], tmp_path / "out", seconds=2.0)
    assert "small.tflite" in refusal.value.received
    assert "was killed by SIGKILL" in refusal.value.received
    assert "baseline" in refusal.value.expected
    assert not list(tmp_path.iterdir())
    assert not workers()


def test_a_model_whose_call_never_returns_is_stopped_and_is_a_row(models, tmp_path, monkeypatch):
    import tensorflow as tf

    from tfopt.processes import rpc as asked

    def endless(x):
        return {"y": tf.while_loop(lambda y: tf.reduce_all(y == y), lambda y: (tf.abs(y),), [x])[0]}

    model = tflite(tmp_path / "endless.tflite", endless, tf.TensorSpec([1, 64], name="x"))
    monkeypatch.setattr(asked, "PATIENCE", 12.0)
    content = run(models["small"], [model], tmp_path / "out", batch_sizes=["1"])
    assert "gave no answer to 'prepare' in 12 seconds" in content["models"][1]["error"]
    assert content["models"][0]["error"] is None
    assert not workers()


def test_models_of_one_format_and_settings_are_forked_from_the_same_process(models, tmp_path):
    small, large = models["small"], models["large"]
    configured = tmp_path / "configured"
    configure_runtime(model=small.with_suffix(""), configured=configured, onednn="off")
    with Origins(cores(1), tmp_path) as origins:
        lite, plain, off = (origins.of(Model(path)) for path in (small, small.with_suffix(""), configured))
        assert lite is origins.of(Model(large))
        assert plain is origins.of(Model(large.with_suffix("")))
        assert len({lite, plain, off}) == len(workers()) == 3


def test_another_runtime_than_the_baselines_makes_the_interval_wider(models, tmp_path):
    small = models["small"]
    content = run(small, [small, small.with_suffix("")], tmp_path / "out", batch_sizes=["1"])
    samples = pq.read_table(tmp_path / "out" / "samples.parquet").to_pandas()
    medians = samples.groupby(["model", "round"], observed=True)["nanoseconds"].median()
    for row, unsure in zip(content["models"][1:], (0.0, content["interval"]["another_runtime"]), strict=True):
        times = (medians[name].to_numpy() for name in (content["baseline"], row["name"]))
        again = speedup(*times, min_effect=content["interval"]["min_effect"], unsure=unsure)
        assert row["speedup"]["1"] == pytest.approx(again.facts())


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_it_leaves_no_process_and_no_output(models, tmp_path, kind):
    words = ["--baseline", models["small"], "--candidates", models["large"], "--benchmark", tmp_path / "out"]
    command = [sys.executable, "-m", "tfopt.run", "benchmark", *words, "--seconds", "60"]
    mark = "MEASURED_FOR", str(tmp_path)
    environment = os.environ | dict([mark])
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: all_at_once(process.pid)) == 3 * [(1, "1", may_go_first())]
        assert len(marked(*mark)) > 1  # so they would be found below, were they left
        process.send_signal(kind)
        assert process.wait(20) != 0
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not marked(*mark), 20)
    assert not (tmp_path / "out").exists()
    assert kind == signal.SIGKILL or not list(tmp_path.iterdir())


def all_at_once(command: int) -> list[tuple[int, str | None, bool]] | None:
    """The cores, threads and priority of a runtime and two models, when all run; models are new in each round."""
    with contextlib.suppress(psutil.NoSuchProcess):
        own = workers(command)
        found = [(len(one.cpu_affinity()), one.environ().get("OMP_NUM_THREADS"), one.nice() == -20) for one in own]
        if len(own) == 3 and not any(has_ended(one) for one in own):
            return found
    return None


@contextlib.contextmanager
def killed_in_its_turns(number: int):
    """End the process of a model, by its number, as a machine short of memory would, in the second round."""
    seen: list[psutil.Process] = []

    def third_is_killed() -> bool:
        seen.extend(process for process in prints_to(f"{number}.log") if process not in seen)
        with contextlib.suppress(psutil.NoSuchProcess):  # ended by now: the next one, then
            if len(seen) >= 3:
                seen[-1].kill()
                return True
        return False

    thread = threading.Thread(target=wait_until, args=[third_is_killed])
    thread.start()
    yield
    thread.join()


def prints_to(log: str) -> list[psutil.Process]:
    """The processes of models that print to a log of that name."""
    return [process for process in workers() if Path(f"/proc/{process.pid}/fd/1").resolve().name == log]


@contextlib.contextmanager
def a_rival(core: int):
    """Another process on a core that never rests, with as much priority as a model has."""
    privileged = may_go_first()
    code = f"import os; os.sched_setaffinity(0, [{core}])" + "; os.setpriority(os.PRIO_PROCESS, 0, -20)" * privileged
    process = subprocess.Popen([sys.executable, "-c", f"{code}\nwhile True: pass"], start_new_session=True)
    if privileged and (group := Path(f"/proc/{process.pid}/autogroup")).exists():
        group.write_text("-20")
    try:
        yield
    finally:
        process.kill()
        process.wait()
