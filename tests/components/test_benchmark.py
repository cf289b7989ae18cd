"""Test `benchmark` on real models in real processes: verdicts, failures, samples and report."""

import logging
import os
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.components.workloads import QUICK, run
from tests.conftest import write_examples
from tfopt import keras_models
from tfopt.artifacts import Benchmark
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.benchmark.component import benchmark
from tfopt.components.benchmark.inputs import read_records
from tfopt.components.benchmark.machine_conditions import describe_tensorflow
from tfopt.components.configure_runtime.component import configure_runtime
from tfopt.errors import ComponentError
from tfopt.measurement import machine_fingerprint
from tfopt.measurement.saturation import find_saturation
from tfopt.measurement.speedup import speedup
from tfopt.reports.benchmark_report import UNSTABLE
from tfopt.reports.report_schema import dump
from tfopt.runtimes import environment

DAMAGED = ("{", "[]", '{"OMP_NUM_THREADS": 1}')  # files of environment variables that cannot be read


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("measured")


@pytest.fixture(scope="module")
def measured(models, folder) -> Benchmark:
    """Measure models of one input and of two, one of a fixed batch size, one that returns NaN, and damaged ones."""
    columns = {"right": np.ones((5, 3), np.float32), "left": np.full((5, 3), 2, np.float32), "x": np.ones((5, 64))}
    write_examples(folder / "examples" / "Split-eval" / "data_tfrecord-00000-of-00001.gz", columns)
    candidates = [models[name] for name in ("fixed", "nan", "pair")]
    candidates.append(folder / "damaged.tflite")
    candidates[-1].write_bytes(models["small"].read_bytes()[:1000])
    for number, text in enumerate(DAMAGED):
        candidates.append(folder / str(number) / "configured")
        configure_runtime(model=models["small"].with_suffix(""), configured=candidates[-1], onednn="on")
        (candidates[-1] / "Format-Serving" / environment.FILE).write_text(text)
    settings = {"examples": folder / "examples", "batch_sizes": ["2", "1-2", "2"], "benchmark": folder / "out"}
    return benchmark(baseline=models["small"], candidates=candidates, **settings, **QUICK)["benchmark"]


@pytest.fixture(scope="module")
def content(measured) -> dict:
    return measured.read()


@pytest.fixture(scope="module")
def samples(measured) -> pd.DataFrame:
    return pq.read_table(measured.path / "samples.parquet").to_pandas()


def row_of(content: dict, name: str) -> dict:
    (row,) = [row for row in content["models"] if row["name"] == name]
    return row


def test_smaller_larger_and_equal_models_get_their_verdict_and_copies_unique_names(models, tmp_path):
    candidates = [models[name] for name in ("small", "large", "middle")]
    settings = {"batch_sizes": ["32"], "seconds": 0.5, "rounds": 15, "min_effect": 0.2}
    content = run(models["middle"], candidates, tmp_path / "out", **settings)
    baseline, small, large, copy = content["models"]
    assert [row["name"] for row in (baseline, copy)] == ["middle.tflite", "middle.tflite (2)"]
    assert baseline["speedup"] == {}
    assert [model["speedup"]["32"]["verdict"] for model in (small, large, copy)] == ["faster", "slower", "within noise"]
    assert small["latency"]["32"]["p50"] < large["latency"]["32"]["p50"]
    assert small["throughput"]["32"] > large["throughput"]["32"]
    assert 8 <= content["interval"].pop("looks")[-1] <= 15  # fewer rounds on a slow machine
    expected = {"method": "Hodges-Lehmann, signed-rank", "level": 0.99}
    assert content["interval"] == {**expected, "min_effect": 0.2, "another_runtime": 0.02}


def test_every_recorded_call_is_in_the_samples(content, samples):
    assert content["batch_sizes"] == [1, 2]
    assert list(samples.columns) == ["model", "batch_size", "round", "call", "nanoseconds"]
    assert sum(bool(row["latency"]) for row in content["models"]) == 4
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


def test_the_speedup_can_be_recomputed_from_the_samples(content, samples):
    medians = samples.groupby(["batch_size", "model", "round"], observed=True)["nanoseconds"].median()
    for size in (1, 2):
        again = speedup(*(medians[size, name].to_numpy() for name in ("small.tflite", "nan.tflite")), min_effect=0.005)
        reported = row_of(content, "nan.tflite")["speedup"][str(size)]
        if reported["verdict"] == UNSTABLE:  # the machine was disturbed
            again = replace(again, verdict=UNSTABLE)
        assert reported == pytest.approx(asdict(again))


def test_the_ratio_to_the_fastest_model_can_be_recomputed_from_the_samples(content, samples):
    medians = samples.groupby(["batch_size", "model", "round"], observed=True)["nanoseconds"].median()
    speedups = {row["name"]: row["speedup"]["1"]["value"] for row in content["models"] if "1" in row["speedup"]}
    fastest = max({content["baseline"]: 1.0, **speedups}.items(), key=lambda item: item[1])[0]
    compared = [row for row in content["models"] if "1" in row.get("over_fastest", {})]
    assert len(compared) == len(speedups) and fastest not in [row["name"] for row in compared]
    for row in compared:
        assert row["format"] == row_of(content, fastest)["format"] == "tflite"
        again = speedup(*(medians[1, name].to_numpy() for name in (fastest, row["name"])), min_effect=0.01)
        assert row["over_fastest"]["1"] == pytest.approx(asdict(again))


def test_the_saturation_can_be_recomputed_from_the_samples(content, samples):
    calls = samples[samples["model"] == "small.tflite"].groupby(["batch_size", "round"])["nanoseconds"].median()
    rates = {size: size * 1e9 / calls[size].to_numpy() for size in (1, 2)}
    assert row_of(content, "small.tflite")["saturation"] == asdict(find_saturation(rates))
    assert row_of(content, "fixed.tflite")["saturation"] is None


def test_variables_that_cannot_be_read_are_an_error_of_their_model(content):
    rows = content["models"][-len(DAMAGED) :]
    assert [row["name"].partition("oneDNN on")[2] for row in rows] == ["", " (2)", " (3)"]
    assert all("environment.json" in row["error"] for row in rows)
    assert content["models"][0]["latency"]


def test_a_damaged_candidate_is_a_row_and_a_damaged_baseline_an_error(models, content, folder, tmp_path):
    assert "damaged.tflite" in row_of(content, "damaged.tflite")["error"]
    assert content["models"][0]["latency"]
    with pytest.raises(ComponentError, match="the baseline damaged"):
        run(folder / "damaged.tflite", [models["small"]], tmp_path / "again")


def test_outputs_that_are_not_finite_are_noted_and_still_measured(content):
    row = row_of(content, "nan.tflite")
    assert "batch size 1: output 'y' is not finite" in row["notes"]
    assert row["latency"]["2"]["samples"]
    assert not any("finite" in note for note in content["models"][0]["notes"])


def test_several_inputs_are_read_from_the_examples_by_name(content):
    assert [row_of(content, name)["error"] for name in ("pair.tflite", "small.tflite")] == [None, None]
    assert content["inputs"]["source"] == "examples"


def test_a_model_with_a_fixed_batch_size_is_measured_only_at_that_size(models, content, tmp_path):
    small, fixed = row_of(content, "small.tflite"), row_of(content, "fixed.tflite")
    assert set(small["latency"]) == {"1", "2"}
    assert set(fixed["latency"]) == set(fixed["throughput"]) == set(fixed["speedup"]) == {"2"}
    assert any(note.startswith("batch size 1 is not measured") and "float32[2,64]" in note for note in fixed["notes"])
    reverse = run(models["fixed"], [models["small"]], tmp_path / "reverse", batch_sizes=["1", "2"])
    assert set(reverse["models"][1]["speedup"]) == {"2"}


def test_the_report_loads_as_a_typed_report_and_is_written_the_same_again(measured, content):
    report = measured.load()
    assert report.baseline == "small.tflite"
    assert report.models[2].speedup["2"].verdict == content["models"][2]["speedup"]["2"]["verdict"]
    assert dump(report) == content
    assert next(iter(content)) == "schema_version"


def test_metadata_has_the_latency_of_each_measured_model(measured, content):
    metadata = measured.metadata
    assert (metadata["models"], metadata["failed"]) == (8, 4)
    names = [f"{name}.tflite" for name in ("small", "nan", "pair")]  # those measured at the first batch size
    assert {key for key in metadata if "[" in key} == {f"latency_ms[{name}]" for name in names}
    assert metadata["latency_ms[nan.tflite]"] == row_of(content, "nan.tflite")["latency"]["1"]["p50"]


def test_a_far_slower_model_is_not_measured_at_that_batch_size(models, tmp_path):
    """The large model does 16 times the work; the limit is 5 times, with calls of 4 ms or more."""
    note_pattern = r"batch size 1024 is not measured: a call took \S+ s during warm-up, \d+\.\d times the baseline's"
    content = run(models["small"], [models["large"]], tmp_path / "out", seconds=0.1, batch_sizes=["1", "1024"])
    baseline, large = content["models"]
    assert (list(baseline["latency"]), list(large["latency"]), list(large["speedup"])) == (["1", "1024"], ["1"], ["1"])
    assert any(re.fullmatch(note_pattern, note) for note in large["notes"])


def test_the_report_has_the_machine_and_the_memory_of_the_runtime_alone(content):
    import tensorflow as tf

    baseline, environment = content["models"][0], content["environment"]
    assert (baseline["format"], content["inputs"]["source"]) == ("tflite", "examples")
    assert 0 < baseline["load_seconds"] < 60
    assert 0 < baseline["first_call_seconds"] < 60
    assert 0 < baseline["cold_start"]["seconds"] < 60
    assert baseline["sizes"]["raw"] > baseline["sizes"]["gzipped"] > 1000
    # This process has imported TensorFlow, which must not count as memory of the LiteRT model.
    assert baseline["runtime_memory_bytes"] < baseline["peak_memory_bytes"] < 150e6
    assert environment["cpu"]["model"]
    assert environment["cpu"]["instruction_sets"]
    assert environment["versions"]["tensorflow"] == tf.__version__
    assert len(environment["affinity"]) == content["threads"] == 1
    assert len(environment["load"]["average_before"]) == 3


# An import of Keras takes 3 s, and each of 8 rounds loads the model; daily, test_configure_runtime.py has oneDNN.
@pytest.mark.nightly
@pytest.mark.parametrize("formats", [["tflite"], ["keras", "tflite"]], ids=str)
def test_formats_are_measured_on_real_inputs_with_their_environment(formats, digits_examples, tmp_path, monkeypatch):
    import keras
    import tensorflow as tf

    monkeypatch.delenv(environment.ONEDNN, raising=False)
    image = keras.Input((8, 8, 1), name="image")
    model = keras.Model(image, keras.layers.Dense(10, name="digit")(keras.layers.Flatten()(image)))
    keras_models.save(model, tmp_path / "model")
    saved_model = tmp_path / "model" / "Format-Serving"
    lite = tmp_path / "digits ä.tflite"
    lite.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(saved_model)).convert())
    settings = {"examples": digits_examples, "batch_sizes": ["32"], "seconds": 0.1}
    files = {"keras": tmp_path / "model" / "Format-Keras" / "model.keras", "tflite": lite}
    content = run(saved_model, [files[name] for name in formats], tmp_path / "out", **settings)
    rows = content["models"]
    assert [row["format"] for row in rows] == ["saved_model", *formats]
    assert {row["error"] for row in rows} == {None}
    assert content["inputs"] == {"source": "examples", "records": 32}
    for row in rows:
        assert 0 < row["load_seconds"] < 60
        assert 0 < row["first_call_seconds"] < 60
        assert row["sizes"]["raw"] > row["sizes"]["gzipped"] > 1000
        assert row["runtime_memory_bytes"] < row["peak_memory_bytes"]
    # This process has imported TensorFlow, which must not count as memory of the LiteRT model.
    assert rows[-1]["peak_memory_bytes"] < 150e6 < 300e6 < rows[0]["peak_memory_bytes"]
    start = rows[-1]["cold_start"]
    assert start["over_baseline"]["value"] > 2 and start["over_best"] is None
    assert 0 < start["seconds"] < rows[0]["cold_start"]["seconds"]
    reported = content["environment"]
    assert reported["cpu"]["model"]
    assert reported["cpu"]["instruction_sets"]
    assert reported["versions"]["tensorflow"] == tf.__version__
    assert len(reported["affinity"]) == content["threads"] == 1
    assert reported["tensorflow"]["onednn"]["enabled"] is environment.has_onednn()
    assert reported["tensorflow"]["onednn"]["TF_ENABLE_ONEDNN_OPTS"] is None
    assert reported["tensorflow"]["instruction_sets_not_in_the_build"]
    assert len(reported["load"]["average_before"]) == 3


def test_describe_tensorflow_parses_the_log_of_the_build():
    printed = (
        "I0000 port.cc:153] oneDNN custom operations are on. You may see slightly different numerical results\n"
        "To enable the following instructions: SSE4.1 AVX2 AVX512_VNNI FMA, in other operations, rebuild TensorFlow\n"
    )
    facts = describe_tensorflow({"gpus": []}, printed)
    assert facts["instruction_sets_not_in_the_build"] == ["SSE4.1", "AVX2", "AVX512_VNNI", "FMA"]
    assert facts["onednn"]["enabled"] is True
    assert describe_tensorflow({}, "")["instruction_sets_not_in_the_build"] is None


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
def test_parameters_out_of_range_are_refused(models, tmp_path, values):
    with pytest.raises(ComponentError, match=next(iter(values))):
        run(models["small"], [models["large"]], tmp_path / "out", **values)


def test_more_threads_than_cores_are_refused_with_the_number_of_cores(models, tmp_path):
    with pytest.raises(ComponentError) as refusal:
        run(models["small"], [models["large"]], tmp_path / "out", threads=4096)
    assert f"threads={len(os.sched_getaffinity(0))}" in refusal.value.fix


def test_the_quota_of_a_container_limits_the_cores(models, tmp_path, monkeypatch):
    monkeypatch.setattr(machine_fingerprint, "CGROUPS", tmp_path)
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text(f"{1 << 30}\n")
    assert machine_fingerprint.fingerprint()["cgroup"] == {"cpu_cores": 1.5, "memory_bytes": 1 << 30}
    with pytest.raises(ComponentError, match="at most 1, the cores") as refusal:
        run(models["small"], [models["large"]], tmp_path / "out", threads=2)
    assert "threads=1" in refusal.value.fix
    with pytest.raises(ComponentError, match="node_cores=2"):
        run(models["small"], [models["large"]], tmp_path / "out", node_cores=2, max_p99_ms=20.0)


def test_a_model_that_supports_none_of_the_batch_sizes_fails(models, tmp_path):
    content = run(models["small"], [models["fixed"]], tmp_path / "out", batch_sizes=["4"])
    assert "batch size 4" in content["models"][1]["error"]
    with pytest.raises(ComponentError, match="batch size 4"):
        run(models["fixed"], [models["small"]], tmp_path / "again", batch_sizes=["4"])


def test_examples_without_an_input_are_refused_with_the_nearest_names(models, digits_examples, tmp_path):
    with pytest.raises(ComponentError) as refusal:
        run(models["pair"], [models["large"]], tmp_path / "out", examples=digits_examples)
    assert "no feature 'left'" in refusal.value.received
    assert "image" in refusal.value.fix
    with pytest.raises(ComponentError, match="split 'test'"):
        run(models["small"], [models["large"]], tmp_path / "again", examples=digits_examples, split="test")


def test_calls_longer_than_a_turn_reduce_the_rounds_and_add_a_note(models, tmp_path, caplog):
    middle = models["middle"]
    with caplog.at_level(logging.INFO, "tfopt"):
        content = run(middle, [middle], tmp_path / "out", seconds=0.1, rounds=200, batch_sizes=["2048"])
    rounds = set(pq.read_table(tmp_path / "out" / "samples.parquet")["round"].to_pylist())
    assert 8 <= len(rounds) < 100
    assert re.fullmatch(rf"round {len(rounds)} of at most {len(rounds)}, \d+ s left", caplog.messages[-1])
    for row in content["models"]:
        assert any(f"{len(rounds)} rounds instead of 200" in note for note in row["notes"])


def test_records_are_repeated_if_there_are_too_few(tmp_path):
    specs = {"text": TensorSpec("string", (None, 1))}
    file = tmp_path / "text.tfrecord.gz"
    write_examples(file, {"text": np.array(["one", "zwölf", "drei"])})
    texts = read_records([file], specs, 5)["text"]
    assert [value.decode() for value in texts.ravel()] == ["one", "zwölf", "drei", "one", "zwölf"]
