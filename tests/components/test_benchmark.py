"""Test `benchmark` on real models in real processes: verdicts, failures, samples and report."""

import logging
import os
import re
from dataclasses import asdict

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.components.workloads import QUICK, run
from tests.conftest import write_examples
from tfopt.artifacts import Benchmark
from tfopt.artifacts.report_schema import dump
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.benchmark.component import benchmark
from tfopt.components.benchmark.inputs import read_records
from tfopt.components.benchmark.model_environment import describe_tensorflow
from tfopt.components.configure_runtime.component import configure_runtime
from tfopt.errors import ComponentError
from tfopt.measurement.saturation import find_saturation
from tfopt.measurement.speedup import speedup
from tfopt.runtimes import environment


def test_a_smaller_model_is_faster_and_a_larger_one_slower(models, tmp_path):
    content = run(models["middle"], [models["small"], models["large"]], tmp_path / "out", seconds=1.0, rounds=15)
    baseline, small, large = content["models"]
    assert baseline["speedup"] == {}
    for batch_size in ("1", "32"):
        assert small["speedup"][batch_size]["verdict"] == "faster"
        assert large["speedup"][batch_size]["verdict"] == "slower"
        assert small["latency"][batch_size]["p50"] < large["latency"][batch_size]["p50"]
        assert small["throughput"][batch_size] > large["throughput"][batch_size]


def test_copies_of_a_model_are_within_noise_and_get_unique_names(models, tmp_path):
    content = run(models["middle"], [models["middle"]] * 2, tmp_path / "out", seconds=1.0, rounds=15, min_effect=0.2)
    assert [row["name"] for row in content["models"]] == ["middle.tflite", "middle.tflite (2)", "middle.tflite (3)"]
    verdicts = [ratio["verdict"] for row in content["models"][1:] for ratio in row["speedup"].values()]
    assert verdicts == ["within noise"] * 4
    expected = {"method": "Hodges-Lehmann, signed-rank", "level": 0.99, "looks": [10, 15]}
    assert content["interval"] == {**expected, "min_effect": 0.2, "another_runtime": 0.02}


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


def test_the_speedup_can_be_recomputed_from_the_samples(models, tmp_path):
    content = run(models["small"], [models["middle"]], tmp_path / "out", batch_sizes=["8"])
    samples = pq.read_table(tmp_path / "out" / "samples.parquet").to_pandas()
    medians = samples.groupby(["model", "round"], observed=True)["nanoseconds"].median()
    again = speedup(medians["small.tflite"].to_numpy(), medians["middle.tflite"].to_numpy(), min_effect=0.005)
    assert content["models"][1]["speedup"]["8"] == pytest.approx(asdict(again))


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
    # This process has imported TensorFlow, which must not count as memory of the LiteRT model.
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


def test_describe_tensorflow_parses_the_log_of_the_build():
    printed = (
        "I0000 port.cc:153] oneDNN custom operations are on. You may see slightly different numerical results\n"
        "To enable the following instructions: SSE4.1 AVX2 AVX512_VNNI FMA, in other operations, rebuild TensorFlow\n"
    )
    facts = describe_tensorflow({"gpus": []}, printed)
    assert facts["instruction_sets_not_in_the_build"] == ["SSE4.1", "AVX2", "AVX512_VNNI", "FMA"]
    assert facts["onednn"]["enabled"] is True
    assert describe_tensorflow({}, "")["instruction_sets_not_in_the_build"] is None


def test_a_damaged_candidate_is_a_row_and_a_damaged_baseline_an_error(models, tmp_path):
    damaged = tmp_path / "damaged.tflite"
    damaged.write_bytes(models["small"].read_bytes()[:1000])
    content = run(models["small"], [damaged], tmp_path / "out")
    assert "damaged.tflite" in content["models"][1]["error"]
    assert content["models"][0]["latency"]
    with pytest.raises(ComponentError, match="the baseline damaged"):
        run(damaged, [models["small"]], tmp_path / "again")


@pytest.mark.parametrize("text", ["{", "[]", '{"OMP_NUM_THREADS": 1}'])
def test_variables_that_cannot_be_read_are_an_error_of_their_model(models, tmp_path, text):
    damaged = tmp_path / "damaged"
    configure_runtime(model=models["small"].with_suffix(""), configured=damaged, onednn="off")
    (damaged / "Format-Serving" / environment.FILE).write_text(text)
    content = run(models["small"], [damaged], tmp_path / "out")
    assert "environment.json" in content["models"][1]["error"]
    assert content["models"][0]["latency"]


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


def test_a_model_with_a_fixed_batch_size_is_measured_only_at_that_size(models, tmp_path):
    content = run(models["small"], [models["fixed"]], tmp_path / "out", batch_sizes=["1", "4"])
    small, fixed = content["models"]
    assert set(small["latency"]) == {"1", "4"}
    assert set(fixed["latency"]) == set(fixed["throughput"]) == set(fixed["speedup"]) == {"4"}
    assert any(note.startswith("batch size 1 is not measured") and "float32[4,64]" in note for note in fixed["notes"])
    reverse = run(models["fixed"], [models["small"]], tmp_path / "reverse", batch_sizes=["1", "4"])
    assert set(reverse["models"][1]["speedup"]) == {"4"}


def test_a_model_that_supports_none_of_the_batch_sizes_fails(models, tmp_path):
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


def test_calls_longer_than_a_turn_reduce_the_rounds_and_add_a_note(models, tmp_path, caplog):
    large = models["large"]
    with caplog.at_level(logging.INFO, "tfopt"):
        content = run(large, [large], tmp_path / "out", seconds=0.1, rounds=200, batch_sizes=["2048"])
    rounds = set(pq.read_table(tmp_path / "out" / "samples.parquet")["round"].to_pylist())
    assert 8 <= len(rounds) < 100
    assert re.fullmatch(rf"round {len(rounds)} of at most {len(rounds)}, \d+ s left", caplog.messages[-1])
    for row in content["models"]:
        assert any(f"{len(rounds)} rounds instead of 200" in note for note in row["notes"])


def test_the_saturation_can_be_recomputed_from_the_samples(models, tmp_path):
    content = run(models["small"], [models["fixed"]], tmp_path / "out", batch_sizes=["1-4"])
    assert content["batch_sizes"] == [1, 2, 4]
    small, fixed = content["models"]
    samples = pq.read_table(tmp_path / "out" / "samples.parquet").to_pandas()
    calls = samples[samples["model"] == small["name"]].groupby(["batch_size", "round"])["nanoseconds"].median()
    rates = {size: size * 1e9 / calls[size].to_numpy() for size in (1, 2, 4)}
    assert small["saturation"] == asdict(find_saturation(rates))
    assert fixed["saturation"] is None


def test_a_far_slower_model_is_not_measured_at_that_batch_size(models, tmp_path):
    """The large model does 16 times the work; the limit is 5 times, with calls of 7 ms or more."""
    note_pattern = r"batch size 4096 is not measured: a call took \S+ s during warm-up, \d+\.\d times the baseline's"
    content = run(models["small"], [models["large"]], tmp_path / "out", seconds=0.1, batch_sizes=["1", "4096"])
    baseline, large = content["models"]
    assert (list(baseline["latency"]), list(large["latency"]), list(large["speedup"])) == (["1", "4096"], ["1"], ["1"])
    assert any(re.fullmatch(note_pattern, note) for note in large["notes"])
    content = run(models["small"], [models["large"]], tmp_path / "again", seconds=0.1, batch_sizes=["4096"])
    assert re.fullmatch(note_pattern, content["models"][1]["error"]) and content["models"][0]["latency"]
    content = run(models["large"], [models["small"]], tmp_path / "turned", seconds=0.1, batch_sizes=["4096"])
    assert content["models"][1]["speedup"]["4096"]["verdict"] == "faster"


def test_records_are_repeated_if_there_are_too_few(tmp_path):
    specs = {"text": TensorSpec("string", (None, 1))}
    file = tmp_path / "text.tfrecord.gz"
    write_examples(file, {"text": np.array(["one", "zwölf", "drei"])})
    texts = read_records([file], specs, 5)["text"]
    assert [value.decode() for value in texts.ravel()] == ["one", "zwölf", "drei", "one", "zwölf"]


def test_the_report_loads_as_a_typed_report_and_is_written_the_same_again(models, tmp_path):
    content = run(models["small"], [models["large"]], tmp_path / "out", batch_sizes=["1-2"], rounds=8)
    artifact = Benchmark.open(tmp_path / "out")
    report = artifact.load()
    assert report.baseline == "small.tflite"
    assert report.models[1].speedup["2"].verdict == content["models"][1]["speedup"]["2"]["verdict"]
    assert dump(report) == content
    assert next(iter(content)) == "schema_version"


def test_metadata_has_the_latency_of_each_measured_model(models, tmp_path):
    (tmp_path / "broken.tflite").write_bytes(b"nothing")
    candidates = [models["middle"], tmp_path / "broken.tflite"]
    artifact = benchmark(baseline=models["small"], candidates=candidates, benchmark=tmp_path / "b", **QUICK)[
        "benchmark"
    ]
    assert (artifact.metadata["models"], artifact.metadata["failed"]) == (3, 1)
    assert {key for key in artifact.metadata if "[" in key} == {"latency_ms[small.tflite]", "latency_ms[middle.tflite]"}
    assert artifact.metadata["latency_ms[middle.tflite]"] == artifact.read()["models"][1]["latency"]["1"]["p50"]
