"""Test the parameter `signature`: components run and convert the named signature of a model with several."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfopt import runtimes
from tfopt.artifacts import Evaluation, Model
from tfopt.component import components, find
from tfopt.errors import ComponentError

FEATURES = np.linspace(-1, 1, 12 * 4, dtype=np.float32).reshape(12, 4)
MAKES_MODEL = ("fold_batch_norm", "optimize_graph", "cast_precision", "configure_runtime")
EXPORTS = ("export_tflite", "export_onnx", "export_openvino")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A SavedModel whose signatures have other inputs and other functions; ``scores`` has a batch norm."""
    import tensorflow as tf

    class Two(tf.Module):
        def __init__(self) -> None:
            draw = np.random.default_rng(3)
            self.kernel = tf.Variable(draw.normal(size=(4, 3)), dtype=tf.float32)
            self.scale = tf.Variable(draw.normal(size=3) + 2, dtype=tf.float32)
            self.shift = tf.Variable(draw.normal(size=3), dtype=tf.float32)

        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="pair")])
        def total(self, pair: Any) -> dict[str, Any]:
            return {"total": tf.reduce_sum(pair, 1, keepdims=True)}

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="values")])
        def scores(self, values: Any) -> dict[str, Any]:
            return {"scores": tf.nn.softmax(tf.matmul(values, self.kernel) * self.scale + self.shift)}

    folder = tmp_path_factory.mktemp("two signatures") / "model"
    two = Two()
    signatures = {"serving_default": two.total, "scores": two.scores}
    tf.saved_model.save(two, str(folder / "Format-Serving"), signatures=signatures)
    return folder


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> Path:
    """Examples with the inputs of ``scores`` only."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("examples")
    for split in ("train", "eval"):
        (folder / f"Split-{split}").mkdir()
        with tf.io.TFRecordWriter(str(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001")) as writer:
            for index, row in enumerate(FEATURES):
                values = tf.train.Feature(float_list=tf.train.FloatList(value=row))
                label = tf.train.Feature(int64_list=tf.train.Int64List(value=[index % 3]))
                features = tf.train.Features(feature={"values": values, "label": label})
                writer.write(tf.train.Example(features=features).SerializeToString())
    return folder


@pytest.fixture(scope="module")
def expected(model) -> Any:
    with runtimes.load(Model(model), signature="scores") as runtime:
        return runtime.run({"values": FEATURES})["scores"]


def test_every_component_that_runs_or_converts_a_model_has_the_parameter():
    without = {
        name
        for name, component in components().items()
        if any(issubclass(port.type, Model) for port in component.inputs.values())
        and "signature" not in component.parameters
    }
    assert without == {"select_model"}  # it runs none


@pytest.mark.parametrize("name", [*MAKES_MODEL, *EXPORTS])
def test_component_uses_the_signature(model, examples, expected, tmp_path, name):
    component = find(name)
    (output,) = component.outputs
    inputs = {"examples": examples} if "examples" in component.inputs else {}
    settings = {"onednn": "on"} if name == "configure_runtime" else {}  # as in this process, which then runs the model
    component(model=model, signature="scores", **inputs, **settings, **{output: tmp_path / "out"})
    with runtimes.load(Model(tmp_path / "out"), signature="scores") as child:
        np.testing.assert_allclose(child.run({"values": FEATURES})["scores"], expected, atol=0.02)
    card = json.loads((tmp_path / "out" / "model_card.json").read_text())
    assert card["parameters"]["signature"] == "scores"


def test_fold_batch_norm_folds_in_the_signature_and_keeps_the_other(model, tmp_path):
    find("fold_batch_norm")(model=model, signature="scores", folded=tmp_path / "folded")
    folded = Model(tmp_path / "folded")
    assert folded.card.facts["folded"] == 1
    with runtimes.load(folded) as total:
        assert total.run({"pair": np.array([[1, 2]], np.float32)})["total"].tolist() == [[3.0]]


@pytest.mark.parametrize("name", ["fold_batch_norm", "optimize_graph", "export_onnx", "export_tflite"])
def test_component_refuses_a_signature_that_does_not_exist(model, tmp_path, name):
    (output,) = find(name).outputs
    with pytest.raises(ComponentError, match="no signature 'score'") as refused:
        find(name)(model=model, signature="score", **{output: tmp_path / "out"})
    assert "scores" in refused.value.fix
    assert not (tmp_path / "out").exists()


def test_evaluate_measures_the_signature(model, examples, expected, tmp_path):
    find("export_onnx")(model=model, signature="scores", exported=tmp_path / "onnx")
    compared = {"baseline": model, "candidates": [tmp_path / "onnx"], "examples": examples, "signature": "scores"}
    find("evaluate")(**compared, evaluation=tmp_path / "evaluation", label="label")
    accuracy = float((expected.argmax(1) == np.arange(len(FEATURES)) % 3).mean())
    for row in Evaluation(tmp_path / "evaluation").load().models:
        assert row.error is None
        assert row.metrics["accuracy"].value == pytest.approx(accuracy)


def test_validate_serving_and_push_model_use_the_signature(model, examples, tmp_path):
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    served = {"model": model, "examples": examples, "signature": "scores", "layout": "tf_serving"}
    find("validate_serving")(**served, infra_blessing=tmp_path / "infra", seconds=0.2)
    report = json.loads((tmp_path / "infra" / "infra_blessing.json").read_text())
    assert report["models"][0]["inputs"] == {"values": "float32[?,4]"}
    (tmp_path / "blessing").mkdir()
    (tmp_path / "blessing" / "BLESSED").touch()  # as TFX's Evaluator writes it
    find("push_model")(
        **served, blessing=tmp_path / "blessing", pushed=tmp_path / "pushed", destination=str(tmp_path / "versions")
    )
    (file,) = (tmp_path / "versions").glob("*/assets.extra/tf_serving_warmup_requests")
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        assert request.model_spec.signature_name == "scores"
        assert list(request.inputs) == ["values"]


def test_triton_configuration_names_the_signature(model, tmp_path):
    from tfopt.serving.triton_config import write_config
    from tfopt.serving.triton_scheduler import Scheduling

    served = Model(model)
    served.signature = "scores"
    write_config(served, tmp_path, Scheduling(8))
    text = (tmp_path / "config.pbtxt").read_text()
    assert 'key: "TF_SIGNATURE_DEF" value { string_value: "scores" }' in text
    assert '"values"' in text
