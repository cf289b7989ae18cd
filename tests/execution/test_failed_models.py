"""A candidate that cannot be made, or not be loaded, is a row with the reason; the run goes on and never chooses it."""

import json

import pytest

from tfopt.artifacts import CARD, FAILURE, Benchmark, Decision, Evaluation, Model, TFLiteModel
from tfopt.cli.terminal.summary_table import print_summary
from tfopt.component import components
from tfopt.components.benchmark.component import benchmark
from tfopt.components.evaluate.component import evaluate
from tfopt.components.export_onnx.component import export_onnx
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.push_model.component import push_model
from tfopt.components.select_model.component import select_model
from tfopt.errors import ComponentError, MachineError
from tfopt.execution.failed_models import as_row


@pytest.fixture
def failed(digits_model, tmp_path) -> Model:
    """An int8 export without anything to calibrate on."""
    export_tflite(digits_model, tmp_path / "failed", precision="int8", on_failure="row")
    return Model(tmp_path / "failed")


def test_without_being_asked_a_failure_is_raised_and_leaves_nothing(digits_model, tmp_path):
    with pytest.raises(ComponentError, match="without examples"):
        export_tflite(digits_model, tmp_path / "out", precision="int8")
    assert list(tmp_path.iterdir()) == []


def test_the_artifact_says_what_failed_and_holds_no_model(failed, digits_model):
    assert sorted(file.name for file in failed.path.iterdir()) == [FAILURE, CARD]
    assert failed.name == "tflite int8"
    assert failed.format == "not_made"
    assert failed.sizes() == {}
    assert failed.failure == (
        "precision='int8' without examples (how to fix: pass examples=PATH, or precision='dynamic', which needs none)"
    )
    message = json.loads((failed.path / FAILURE).read_text())
    assert message["component"] == "export_tflite"
    assert message["model"] == Model(digits_model).digest
    assert "on_failure" not in failed.card.parameters
    assert not failed.is_worth_another_attempt


def test_failures_of_other_steps_have_other_digests(failed, digits_model, tmp_path):
    export_tflite(digits_model, tmp_path / "other", precision="int16x8", on_failure="row")
    export_onnx(digits_model, tmp_path / "onnx", precision="int8", on_failure="row")
    digests = {failed.digest, Model(tmp_path / "other").digest, Model(tmp_path / "onnx").digest}
    assert len(digests) == 3


def test_what_is_made_of_it_fails_for_the_same_reason_as_a_row_or_an_error(failed, tmp_path):
    with pytest.raises(ComponentError, match="was not made: precision='int8' without examples"):
        export_onnx(failed, tmp_path / "out")
    export_onnx(failed, tmp_path / "out", on_failure="row")
    assert Model(tmp_path / "out").failure.startswith("model: tflite int8 was not made: precision='int8' without")


def test_it_is_refused_where_one_model_is_needed(failed, tmp_path):
    (tmp_path / "blessing").mkdir()
    (tmp_path / "blessing" / "blessing.json").write_text("{}")
    with pytest.raises(ComponentError, match="was not made"):
        push_model(failed, tmp_path / "blessing", tmp_path / "pushed", destination=str(tmp_path / "served"))
    assert not (tmp_path / "served").exists()


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        ComponentError("the converter failed: No space left on device", "a model", "check that the model runs"),
        ModuleNotFoundError("No module named 'not_there'"),
        MemoryError(),
        KeyboardInterrupt(),
    ],
)
def test_what_says_nothing_about_the_model_is_raised(tmp_path, error):
    with pytest.raises(type(error)), as_row({"out": Model(tmp_path)}, {"on_failure": "row"}, {}):
        raise error
    assert not (tmp_path / FAILURE).exists()


@pytest.mark.parametrize(
    "error",
    ["OSError(28, 'No space left on device')", "ModuleNotFoundError(\"No module named 'tf2onnx'\")"],
)
def test_it_is_raised_from_a_conversions_own_process_too(digits_model, tmp_path, monkeypatch, error):
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "tf2onnx.py").write_text(f"raise {error}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "shadow"))
    with pytest.raises(MachineError, match=r"No space left on device|No module named 'tf2onnx'"):
        export_onnx(digits_model, tmp_path / "out", on_failure="row")
    assert not (tmp_path / "out").exists()


def test_the_row_of_a_conversion_that_crashed_says_why(digits_model, tmp_path, monkeypatch):
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "tf2onnx.py").write_text("raise RuntimeError('no kernel\\nfor this op')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "shadow"))
    export_onnx(digits_model, tmp_path / "out", on_failure="row")
    assert "the process ended with status 1: RuntimeError: no kernel" in Model(tmp_path / "out").failure
    assert Model(tmp_path / "out").is_worth_another_attempt


def test_half_a_model_is_taken_away_and_a_bug_is_a_row_too(tmp_path):
    (tmp_path / "out" / "Format-Serving").mkdir(parents=True)
    (tmp_path / "out" / "Format-Serving" / "tflite").write_text("half")
    with as_row({"out": TFLiteModel(tmp_path / "out")}, {"on_failure": "row"}, {"component": "toy"}):
        raise RuntimeError("a bug\nwith more lines")
    assert [file.name for file in (tmp_path / "out").iterdir()] == [FAILURE]
    assert Model(tmp_path / "out").failure.startswith("RuntimeError: a bug (how to fix")


def test_whoever_offers_rows_has_one_output_a_model():
    offering = [component for component in components().values() if "on_failure" in component.parameters]
    assert {"export_tflite", "export_onnx", "export_openvino", "fold_batch_norm"} <= {c.name for c in offering}
    for component in offering:
        (port,) = component.outputs.values()
        assert issubclass(port.type, Model)


def test_a_run_with_one_not_made_and_one_that_cannot_be_loaded_ends_with_rows(
    failed, digits_lite, digits_examples, tmp_path, capsys
):
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(b"no flatbuffer" * 100)
    models = [failed, broken]
    evaluate(digits_lite, models, digits_examples, tmp_path / "evaluation", replicates=100)
    benchmark(digits_lite, models, tmp_path / "benchmark", seconds=0.1, rounds=8, batch_sizes=["1"])
    select_model(
        digits_lite, models, tmp_path / "evaluation", tmp_path / "benchmark",
        tmp_path / "selected", tmp_path / "decision", tmp_path / "blessing",
    )  # fmt: skip
    decision = Decision(tmp_path / "decision").read()
    rows = {row["name"]: row for row in decision["models"]}
    assert rows["tflite int8"]["reasons"] == [f"not made: {failed.failure}"]
    assert rows["tflite int8"]["format"] == "not_made"
    assert rows["broken.tflite"]["reasons"][0].startswith("could not be measured: ")
    assert not any(rows[name]["passed"] or rows[name]["chosen"] for name in ("tflite int8", "broken.tflite"))
    assert decision["selected"] == "tflite float32"
    page = (tmp_path / "decision" / "report.html").read_text()
    assert "not made: precision=" in page
    print_summary(
        Decision(tmp_path / "decision"), Evaluation(tmp_path / "evaluation"), Benchmark(tmp_path / "benchmark")
    )
    text = " ".join(capsys.readouterr().out.split())
    assert "tflite int8: not made: precision='int8' without examples (how to fix: pass examples=PATH" in text
    assert "tried again when the model, the parameters, the code or a package changes" in text
