"""Real models in real processes: the verdicts are right, a failure is a row, and nothing is left running."""

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from tests.conftest import write_examples
from tfopt.artifacts import Benchmark
from tfopt.components.benchmark.component import benchmark
from tfopt.components.benchmark.environment import cores, tensorflow
from tfopt.components.benchmark.inputs import read_records
from tfopt.errors import ComponentError
from tfopt.ratio import speedup
from tfopt.runtimes import TensorSpec

QUICK = {"seconds": 0.4, "rounds": 10}


def tflite(file: Path, function, *specs) -> Path:
    """Convert a function of named tensors to a file with the signature of a server."""
    import tensorflow as tf

    module = tf.Module()
    module.f = tf.function(function, input_signature=specs)
    concrete = module.f.get_concrete_function()
    tf.saved_model.save(module, str(file.with_suffix("")), signatures=concrete)
    file.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(file.with_suffix(""))).convert())
    return file


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    """LiteRT files that do more and less of the same work, and some that are odd."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)

    def dense(width):
        inner, outer = (tf.constant(rng.normal(size=size), tf.float32) for size in ((64, width), (width, 8)))
        return lambda x: {"y": tf.nn.relu(x @ inner) @ outer}

    def both(left, right):
        return {"sum": left + right, "product": left * right}

    free, fixed = tf.TensorSpec([None, 64], name="x"), tf.TensorSpec([4, 64], name="x")
    left, right = (tf.TensorSpec([None, 3], name=name) for name in ("left", "right"))
    return {
        "small": tflite(folder / "small.tflite", dense(512), free),
        "middle": tflite(folder / "middle.tflite", dense(2048), free),
        "large": tflite(folder / "large.tflite", dense(8192), free),
        "fixed": tflite(folder / "fixed.tflite", dense(64), fixed),
        "nan": tflite(folder / "nan.tflite", lambda x: {"y": tf.math.log(x - 2.0)}, free),
        "pair": tflite(folder / "pair.tflite", both, left, right),
    }


def run(baseline: Path, candidates: list[Path], output: Path, **others) -> dict:
    return benchmark(baseline=baseline, candidates=candidates, benchmark=output, **QUICK | others)["benchmark"].read()


def workers(model: Path | str = "") -> list[psutil.Process]:
    """The processes of a model, of any test, that run now."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if "tfopt.components.benchmark.worker" in words and str(model) in words:
            found.append(process)
    return found


def wait_until(condition, seconds: float = 60):
    """Return the condition's first true value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return value


@contextlib.contextmanager
def killed_while_it_runs(model: Path):
    """End the model's process as a machine short of memory would, in the middle of its turns."""

    def kill():
        process = wait_until(lambda: workers(model))[0]
        wait_until(lambda: process.cpu_times().user > 0.6)
        process.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    yield
    thread.join()


def may_go_first() -> bool:
    """Whether a process may raise its priority here: not without privileges."""
    command = "import os; os.setpriority(os.PRIO_PROCESS, 0, -20)"
    return not subprocess.run([sys.executable, "-c", command], stderr=subprocess.DEVNULL).returncode


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


def test_less_work_is_faster_and_more_is_slower(models, tmp_path):
    content = run(models["middle"], [models["small"], models["large"]], tmp_path / "out", seconds=1.0, rounds=15)
    baseline, small, large = content["models"]
    assert baseline["speedup"] == {}
    for batch_size in ("1", "32"):
        assert small["speedup"][batch_size]["verdict"] == "faster"
        assert large["speedup"][batch_size]["verdict"] == "slower"
        assert small["latency"][batch_size]["p50"] < large["latency"][batch_size]["p50"]
        assert small["throughput"][batch_size] > large["throughput"][batch_size]


def test_the_same_model_again_is_within_noise_under_a_name_of_its_own(models, tmp_path):
    content = run(models["middle"], [models["middle"]] * 2, tmp_path / "out", seconds=1.0, rounds=15)
    assert [row["name"] for row in content["models"]] == ["middle.tflite", "middle.tflite (2)", "middle.tflite (3)"]
    verdicts = [found["verdict"] for row in content["models"][1:] for found in row["speedup"].values()]
    assert verdicts == ["within noise"] * 4
    assert content["interval"] == {"method": "Hodges-Lehmann, signed-rank", "level": 0.99, "min_effect": 0.03}


def test_a_rival_on_the_core_is_noted_and_makes_no_verdict(models, tmp_path):
    with a_rival(cores(1)[0]):
        content = run(models["middle"], [models["middle"]], tmp_path / "out", seconds=1.0, rounds=15)
    for row in content["models"]:
        assert row["latency"]["1"]["disturbed"] > 0.2
        assert row["latency"]["1"]["stable"] is False
        assert any("other processes had its cores" in note for note in row["notes"])
    assert {found["verdict"] for found in content["models"][1]["speedup"].values()} == {"within noise"}


def test_every_recorded_call_is_in_the_samples(models, tmp_path):
    content = run(models["small"], [models["large"]], tmp_path / "out", batch_sizes=["32", "2", "2"])
    assert content["batch_sizes"] == [2, 32]
    samples = pq.read_table(tmp_path / "out" / "samples.parquet").to_pandas()
    assert list(samples.columns) == ["model", "batch_size", "round", "call", "nanoseconds"]
    for row in content["models"]:
        for batch_size, latency in row["latency"].items():
            calls = samples[(samples["model"] == row["name"]) & (samples["batch_size"] == int(batch_size))]
            times = calls["nanoseconds"] / 1e6
            assert len(calls) == latency["samples"]
            assert sorted(calls["round"].unique()) == list(range(QUICK["rounds"]))
            assert not calls.duplicated(["round", "call"]).any()
            assert times.mean() == pytest.approx(latency["mean"])
            for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
                assert times.quantile(part) == pytest.approx(latency[name])


def test_the_samples_give_the_same_speedup_again(models, tmp_path):
    content = run(models["small"], [models["middle"]], tmp_path / "out", batch_sizes=["8"])
    samples = pq.read_table(tmp_path / "out" / "samples.parquet").to_pandas()
    medians = samples.groupby(["model", "round"], observed=True)["nanoseconds"].median()
    again = speedup(medians["small.tflite"].to_numpy(), medians["middle.tflite"].to_numpy(), min_effect=0.03)
    assert content["models"][1]["speedup"]["8"] == pytest.approx(again.facts())


def test_every_format_is_measured_on_real_inputs_with_its_environment(
    digits_model, digits_examples, tmp_path, monkeypatch
):
    import tensorflow as tf

    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    saved_model, keras = digits_model / "Format-Serving", digits_model / "Format-Keras" / "model.keras"
    lite = tmp_path / "digits ä.tflite"
    lite.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(saved_model)).convert())
    content = run(saved_model, [keras, lite], tmp_path / "out", examples=digits_examples)
    rows = content["models"]
    assert [row["format"] for row in rows] == ["saved_model", "keras", "tflite"]
    assert [row["error"] for row in rows] == [None] * 3
    assert content["inputs"] == {"source": "examples", "records": 32}
    for row in rows:
        assert 0 < row["load_seconds"] < 60
        assert 0 < row["first_call_seconds"] < 60
        assert row["sizes"]["raw"] > row["sizes"]["gzipped"] > 1000
        assert row["runtime_memory_bytes"] < row["peak_memory_bytes"]
    # This process holds TensorFlow, and nothing of it may be counted as the LiteRT model's.
    assert rows[2]["peak_memory_bytes"] < 150e6 < 300e6 < rows[0]["peak_memory_bytes"]
    environment = content["environment"]
    assert environment["cpu"]["model"]
    assert environment["cpu"]["instruction_sets"]
    assert environment["versions"]["tensorflow"] == tf.__version__
    assert len(environment["affinity"]) == content["threads"] == 1
    assert environment["tensorflow"]["onednn"]["enabled"] is False
    assert environment["tensorflow"]["onednn"]["TF_ENABLE_ONEDNN_OPTS"] == "0"
    assert environment["tensorflow"]["instruction_sets_not_in_the_build"]
    assert len(environment["load"]["average_before"]) == 3


def test_what_tensorflow_prints_of_its_build_is_read(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "I0000 port.cc:153] oneDNN custom operations are on. You may see slightly different numerical results\n"
        "To enable the following instructions: SSE4.1 AVX2 AVX512_VNNI FMA, in other operations, rebuild TensorFlow\n"
    )
    found = tensorflow({"gpus": []}, log)
    assert found["instruction_sets_not_in_the_build"] == ["SSE4.1", "AVX2", "AVX512_VNNI", "FMA"]
    assert found["onednn"]["enabled"] is True
    log.write_text("")
    assert tensorflow({}, log)["instruction_sets_not_in_the_build"] is None


def test_a_killed_candidate_is_a_row_with_its_end(models, tmp_path):
    with killed_while_it_runs(models["large"]):
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
    assert not workers(models["large"].parent)


def test_a_killed_baseline_is_an_error_and_leaves_nothing(models, tmp_path):
    with killed_while_it_runs(models["small"]), pytest.raises(ComponentError) as refusal:
        run(models["small"], [models["large"]], tmp_path / "out", seconds=2.0)
    assert "small.tflite" in refusal.value.received
    assert "was killed by SIGKILL" in refusal.value.received
    assert "baseline" in refusal.value.expected
    assert not list(tmp_path.iterdir())
    assert not workers(models["small"].parent)


def test_a_model_whose_call_never_returns_is_stopped_and_is_a_row(models, tmp_path, monkeypatch):
    import tensorflow as tf

    from tfopt import asked

    def endless(x):
        return {"y": tf.while_loop(lambda y: tf.reduce_all(y == y), lambda y: (tf.abs(y),), [x])[0]}

    model = tflite(tmp_path / "endless.tflite", endless, tf.TensorSpec([1, 64], name="x"))
    monkeypatch.setattr(asked, "PATIENCE", 12.0)
    content = run(models["small"], [model], tmp_path / "out", batch_sizes=["1"])
    assert "gave no answer to 'prepare' in 12 seconds" in content["models"][1]["error"]
    assert content["models"][0]["error"] is None
    assert not workers(tmp_path)


def test_a_damaged_candidate_is_a_row_and_a_damaged_baseline_an_error(models, tmp_path):
    damaged = tmp_path / "damaged.tflite"
    damaged.write_bytes(models["small"].read_bytes()[:1000])
    content = run(models["small"], [damaged], tmp_path / "out")
    assert "damaged.tflite" in content["models"][1]["error"]
    assert content["models"][0]["latency"]
    with pytest.raises(ComponentError, match="the baseline damaged"):
        run(damaged, [models["small"]], tmp_path / "again")


@pytest.mark.parametrize("sizes", [["0"], ["-1"], ["1.5"], ["many"], ["1", ""], []])
def test_batch_sizes_are_whole_numbers_from_one(models, tmp_path, sizes):
    with pytest.raises(ComponentError) as refusal:
        run(models["small"], [models["large"]], tmp_path / "out", batch_sizes=sizes)
    assert "batch_sizes" in refusal.value.received
    assert "from 1" in refusal.value.expected
    assert "batch_sizes=" in refusal.value.fix


@pytest.mark.parametrize(
    "values", [{"rounds": 0}, {"rounds": 7}, {"seconds": 0.0}, {"threads": 0}, {"min_effect": -0.1}]
)
def test_values_that_allow_no_measurement_are_refused(models, tmp_path, values):
    with pytest.raises(ComponentError, match=next(iter(values))):
        run(models["small"], [models["large"]], tmp_path / "out", **values)


def test_more_threads_than_cores_are_refused_with_the_number_there_is(models, tmp_path):
    with pytest.raises(ComponentError) as refusal:
        run(models["small"], [models["large"]], tmp_path / "out", threads=4096)
    assert f"threads={len(os.sched_getaffinity(0))}" in refusal.value.fix


def test_a_model_of_a_fixed_batch_is_measured_at_that_one_only(models, tmp_path):
    content = run(models["small"], [models["fixed"]], tmp_path / "out", batch_sizes=["1", "4"])
    small, fixed = content["models"]
    assert set(small["latency"]) == {"1", "4"}
    assert set(fixed["latency"]) == set(fixed["throughput"]) == set(fixed["speedup"]) == {"4"}
    assert any(note.startswith("batch size 1 is not measured") and "float32[4,64]" in note for note in fixed["notes"])
    reverse = run(models["fixed"], [models["small"]], tmp_path / "reverse", batch_sizes=["1", "4"])
    assert set(reverse["models"][1]["speedup"]) == {"4"}


def test_a_model_that_does_no_wanted_batch_size_fails(models, tmp_path):
    content = run(models["small"], [models["fixed"]], tmp_path / "out", batch_sizes=["2"])
    assert "batch size 2" in content["models"][1]["error"]
    with pytest.raises(ComponentError, match="batch size 2"):
        run(models["fixed"], [models["small"]], tmp_path / "again", batch_sizes=["2"])


def test_outputs_that_are_not_finite_are_noted_and_still_measured(models, tmp_path):
    content = run(models["small"], [models["nan"]], tmp_path / "out")
    row = content["models"][1]
    assert "batch size 1: output 'y' is not finite" in row["notes"]
    assert row["latency"]["32"]["samples"]
    assert not any("finite" in note for note in content["models"][0]["notes"])


def test_several_inputs_are_read_from_the_examples_by_name(models, tmp_path):
    columns = {"right": np.ones((5, 3), np.float32), "left": np.full((5, 3), 2, np.float32), "x": np.ones((5, 64))}
    write_examples(tmp_path / "examples" / "Split-eval" / "data_tfrecord-00000-of-00001.gz", columns)
    content = run(models["pair"], [models["small"]], tmp_path / "out", examples=tmp_path / "examples")
    assert [row["error"] for row in content["models"]] == [None, None]
    assert content["inputs"]["source"] == "examples"


def test_examples_without_an_input_are_refused_with_the_nearest_names(models, digits_examples, tmp_path):
    with pytest.raises(ComponentError) as refusal:
        run(models["small"], [models["large"]], tmp_path / "out", examples=digits_examples)
    assert "no feature 'x'" in refusal.value.received
    assert "image" in refusal.value.fix
    with pytest.raises(ComponentError, match="split 'test'"):
        run(models["small"], [models["large"]], tmp_path / "again", examples=digits_examples, split="test")


def test_calls_longer_than_a_turn_mean_fewer_rounds_and_a_note(models, tmp_path, caplog):
    large = models["large"]
    with caplog.at_level(logging.INFO, "tfopt"):
        content = run(large, [large], tmp_path / "out", seconds=0.1, rounds=200, batch_sizes=["2048"])
    rounds = set(pq.read_table(tmp_path / "out" / "samples.parquet")["round"].to_pylist())
    assert 8 <= len(rounds) < 100
    assert re.fullmatch(rf"round {len(rounds)} of {len(rounds)}, \d+ s left", caplog.messages[-1])
    for row in content["models"]:
        assert any(f"{len(rounds)} rounds instead of 200" in note for note in row["notes"])


def test_records_start_again_where_there_are_too_few(tmp_path):
    specs = {"text": TensorSpec("string", (None, 1))}
    file = tmp_path / "text.tfrecord.gz"
    write_examples(file, {"text": np.array(["one", "zwölf", "drei"])})
    found = read_records([file], specs, 5)["text"]
    assert [value.decode() for value in found.ravel()] == ["one", "zwölf", "drei", "one", "zwölf"]


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_it_leaves_no_process_and_no_output(models, tmp_path, kind):
    words = ["--baseline", models["small"], "--candidates", models["large"], "--benchmark", tmp_path / "out"]
    command = [sys.executable, "-m", "tfopt.run", "benchmark", *words, "--seconds", "60"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        own = wait_until(lambda: len(found := psutil.Process(process.pid).children()) == 2 and found)
        wait_until(lambda: all(child.cpu_times().user > 0.5 for child in own))
        assert all(len(child.cpu_affinity()) == 1 for child in own)
        assert all(child.environ()["OMP_NUM_THREADS"] == "1" for child in own)
        assert all((child.nice() == -20) == may_go_first() for child in own)
        process.send_signal(kind)
        assert process.wait(20) != 0
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not any(child.is_running() for child in own), 20)
    assert not (tmp_path / "out").exists()
    assert kind == signal.SIGKILL or not list(tmp_path.iterdir())


def test_the_result_opens_as_an_artifact(models, tmp_path):
    run(models["small"], [models["large"]], tmp_path / "out", batch_sizes=["1"])
    assert Benchmark.open(tmp_path / "out").read()["baseline"] == "small.tflite"


def test_an_engines_interface_shows_the_latency_of_each_model_that_was_measured(models, tmp_path):
    (tmp_path / "broken.tflite").write_bytes(b"nothing")
    candidates = [models["middle"], tmp_path / "broken.tflite"]
    left = benchmark(baseline=models["small"], candidates=candidates, benchmark=tmp_path / "b", **QUICK)["benchmark"]
    assert (left.metadata["models"], left.metadata["failed"]) == (3, 1)
    assert {key for key in left.metadata if "[" in key} == {"latency_ms[small.tflite]", "latency_ms[middle.tflite]"}
    assert left.metadata["latency_ms[middle.tflite]"] == left.read()["models"][1]["latency"]["1"]["p50"]
