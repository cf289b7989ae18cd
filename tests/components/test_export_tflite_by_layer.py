"""export_tflite layer by layer: 4 bits, recipes, the worst layers left in float, zeros stored sparsely, stability."""

from pathlib import Path

import keras
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from keras import layers

from tests.components.exporters import TFLITE
from tests.conftest import write_examples
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import Examples, Model, TFLiteModel
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.export_tflite.flatbuffer import dense_scale_bytes
from tfopt.components.export_tflite.quantize import MAX_EXTRA_DEGRADATION, choose_dense_scales
from tfopt.conversion.convert import summarize
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError
from tfopt.keras_models import io as keras_models
from tfopt.measurement.parity import Parity, degradation


def weights(folder: Path) -> dict[str, int]:
    """The type of every stored matrix and kernel, by the name of its tensor."""
    file = schema.ModelT.InitFromPackedBuf((folder / "Format-Serving" / "tflite").read_bytes(), 0)
    return {
        tensor.name.decode(): tensor.type
        for tensor in file.subgraphs[0].tensors
        if file.buffers[tensor.buffer].data is not None and len(tensor.shape) > 1
    }


def agreement(parent: Path, child: Path, examples: Path) -> float:
    one, other = runtimes.load(Model(parent)), runtimes.load(TFLiteModel(child))
    batch = next(read_batches(Examples(examples).split("eval"), one.inputs, batch_size=397))
    return float((one.run(batch)["digit"].argmax(1) == other.run(batch)["digit"].argmax(1)).mean())


@pytest.fixture(scope="module")
def wide(tmp_path_factory, digits_examples) -> Path:
    """Dense layers of 64 values on the digits; 9 of 10 weights of the first are zero."""
    specs = {"image": runtimes.TensorSpec("float32", (None, 64)), "label": runtimes.TensorSpec("int64", (None, 1))}
    train = next(read_batches(Examples(digits_examples).split("train"), specs, batch_size=1400))
    keras.utils.set_random_seed(0)
    image = layers.Input((64,), name="image")
    flow = layers.Dense(128, activation="relu", name="first")(layers.Rescaling(1 / 16)(image))
    flow = layers.Dense(64, activation="relu", name="second")(flow)
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(flow))
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(train["image"], train["label"], epochs=6, verbose=0)
    kernel, bias = model.get_layer("first").get_weights()
    kernel[np.abs(kernel) < np.quantile(np.abs(kernel), 0.9)] = 0
    model.get_layer("first").set_weights([kernel, bias])
    keras_models.save(model, tmp_path_factory.mktemp("wide") / "model")
    return tmp_path_factory.getbasetemp() / "wide0" / "model"


def test_int4_stores_weights_in_four_bits_and_needs_no_data(wide, digits_examples, tmp_path):
    TFLITE.export(wide, None, tmp_path / "out", "int4")
    assert set(weights(tmp_path / "out").values()) == {schema.TensorType.INT4}
    TFLITE.export(wide, None, tmp_path / "dynamic", "dynamic")
    sizes = [(tmp_path / name / "Format-Serving/tflite").stat().st_size for name in ("out", "dynamic")]
    assert sizes[0] < 0.75 * sizes[1]
    assert agreement(wide, tmp_path / "out", digits_examples) > 0.9


def test_a_recipe_gives_each_layer_its_kind_and_the_last_rule_counts(wide, digits_examples, tmp_path):
    rules = ("MatMul=int8", "second=int4x32", "digit=float32")
    facts = TFLITE.export(wide, digits_examples, tmp_path / "out", "dynamic", recipe=rules)
    kinds = {name: kind for name, kind in weights(tmp_path / "out").items()}
    found = [next(kind for name, kind in kinds.items() if layer in name) for layer in ("first", "second", "digit")]
    assert found == [schema.TensorType.INT8, schema.TensorType.INT4, schema.TensorType.FLOAT32]
    assert facts["verified"]["outputs"]["digit"]["agreement"] > 0.95


def test_a_kind_that_litert_does_not_load_is_refused(wide, tmp_path):
    with pytest.raises(ComponentError, match="does not load") as error:  # some blocks of 32 weights are all zeros
        TFLITE.export(wide, None, tmp_path / "out", "dynamic", recipe=("first=int4x32",))
    assert "another for the layer" in error.value.fix


def test_a_rule_that_matches_no_layer_is_refused_with_the_layers(wide, tmp_path):
    with pytest.raises(ComponentError) as error:
        TFLITE.export(wide, None, tmp_path / "out", "int4", recipe=("frist=float32",))
    assert error.value.received == "recipe frist=float32: no such layer" and "first" in error.value.expected


@pytest.mark.parametrize("integer_io", [False, True])
def test_int8_by_recipe_keeps_the_inputs_and_outputs_that_were_asked_for(
    digits_model, digits_examples, tmp_path, integer_io
):
    rules = ("depthwise=float32",)
    facts = TFLITE.export(digits_model, digits_examples, tmp_path / "out", "int8", recipe=rules, integer_io=integer_io)
    stored = "INT8" if integer_io else "FLOAT32"
    assert facts["ops"]["io"] == {"image": stored, "digit": stored}
    assert facts["ops"]["float"]["DEPTHWISE_CONV_2D"] == 1 and facts["ops"]["integer"] >= 3
    assert agreement(digits_model, tmp_path / "out", digits_examples) > 0.97


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> Path:
    """Examples of 64 values, the first of them zero."""
    folder, draw = tmp_path_factory.mktemp("vectors"), np.random.default_rng(0)
    for split, count in (("train", 30), ("eval", 200)):
        rows = draw.normal(size=(count, 64)).astype(np.float32) * np.array([0] + [1] * 63, np.float32)
        write_examples(folder / f"Split-{split}/data_tfrecord-00000-of-00001.gz", {"x": rows})
    return folder


def sum_of_layers(folder: Path, names: list[str]) -> Path:
    """Products of one input, added up. Those named torn have a row, for the zero, beside which 8 bits lose the rest."""
    import tensorflow as tf

    draw = np.random.default_rng(1)
    kernels = {name: draw.normal(size=(64, 32)).astype(np.float32) for name in names}
    for name in names:
        kernels[name][0] *= 30_000 if name.startswith("torn") else 1

    def serve(x):
        return {"y": tf.add_n([tf.matmul(x * (i + 1.0), kernels[name], name=name) for i, name in enumerate(names)])}

    return saved(folder, serve, x=([None, 64], tf.float32))


def test_the_worst_layers_stay_in_float_until_the_goal_holds(vectors, tmp_path):
    model = sum_of_layers(tmp_path / "model", ["torn", "b", "c", "d"])
    plain = TFLITE.export(model, vectors, tmp_path / "plain", "dynamic", tolerance=1.0)
    assert 1 - plain["verified"]["outputs"]["y"]["agreement"] > 0.1 and "tried" not in plain
    facts = TFLITE.export(model, vectors, tmp_path / "out", "dynamic", max_degradation=0.05)
    assert 1 - facts["verified"]["outputs"]["y"]["agreement"] <= 0.05
    assert len(facts["left_in_float"]) == 1 and "torn" in facts["left_in_float"][0]
    first, second = facts["tried"]
    assert first["degradation"] > 0.1 and (first["in_float"], second["in_float"]) == (0, 1)
    kinds = weights(tmp_path / "out")
    assert sorted(kinds.values()) == [schema.TensorType.FLOAT32, *[schema.TensorType.INT8] * 3]


def test_a_goal_that_holds_at_once_changes_nothing(digits_model, digits_examples, tmp_path):
    TFLITE.export(digits_model, digits_examples, tmp_path / "a", "dynamic")
    facts = TFLITE.export(digits_model, digits_examples, tmp_path / "b", "dynamic", max_degradation=0.05)
    assert "left_in_float" not in facts
    one, other = (tmp_path / name / "Format-Serving/tflite" for name in ("a", "b"))
    assert one.read_bytes() == other.read_bytes()


def test_a_goal_out_of_reach_is_refused_with_what_was_reached(vectors, tmp_path):
    model = sum_of_layers(tmp_path / "model", ["torn_a", "torn_b", "torn_c", "torn_d"])
    with pytest.raises(ComponentError, match="with 2 of 4 layers left in float32") as error:
        TFLITE.export(model, vectors, tmp_path / "out", "dynamic", max_degradation=0.05)
    assert error.value.expected == "at most max_degradation=0.05"


def test_a_goal_that_a_precision_without_layers_misses_is_refused(vectors, tmp_path):
    kernel = np.random.default_rng(0).normal(size=(64, 1)).astype(np.float32)
    model = saved(tmp_path / "model", lambda x: {"y": x @ kernel}, x=([None, 64], np.float32))
    with pytest.raises(ComponentError, match="float16: degradation"):
        TFLITE.export(model, vectors, tmp_path / "out", "float16", max_degradation=0.0)


def test_degradation_is_the_worst_of_all_outputs():
    def parity(agreement, correlation=None, error=1.0):
        return Parity(error, 0.1, 1.0, agreement, 10, correlation=correlation)

    assert degradation([parity(0.9), parity(0.7)]) == pytest.approx(0.3)
    assert degradation([parity(None, 0.8), parity(1.0)]) == pytest.approx(0.2)
    assert degradation([parity(None, None, 0.0)]) == 0
    assert degradation([parity(None, None, 0.5)]) == 1


def test_dense_layers_get_by_with_one_scale_where_that_saves_much_and_the_answers_stay(
    wide, digits_model, digits_examples, tmp_path
):
    said = TFLITE.export(wide, digits_examples, tmp_path / "out", "int8")["dense_scales"]
    assert said["one_for_each"] == "layer"
    assert said["degradation"]["layer"] <= said["degradation"]["channel"] + MAX_EXTRA_DEGRADATION
    content = (tmp_path / "out" / "Format-Serving" / "tflite").read_bytes()
    assert len(content) == said["bytes"]["layer"] < said["bytes"]["channel"] - 4000
    assert dense_scale_bytes(content) == 0
    assert agreement(wide, tmp_path / "out", digits_examples) > 0.95
    strict = TFLITE.export(wide, digits_examples, tmp_path / "strict", "int8", tolerance=1.0)
    assert "dense_scales" not in strict  # a tolerance asks for the most exact file
    assert "dense_scales" not in TFLITE.export(digits_model, digits_examples, tmp_path / "small", "int8")
    channels = (tmp_path / "strict" / "Format-Serving" / "tflite").read_bytes()
    assert dense_scale_bytes(channels) == 2 * 12 * (128 + 64 + 10)
    for lost, kept in ((0.004, content), (0.005, channels)):
        assert (
            choose_dense_scales(channels, lambda: content, {channels: 0.01, content: 0.01 + lost}.__getitem__)[0]
            == kept
        )
    most = choose_dense_scales(channels, lambda: content, {channels: 0.01, content: 0.012}.__getitem__, 0.011)
    assert most[0] == channels and most[1]["dense_scales"]["one_for_each"] == "channel"


def test_zeros_are_stored_sparsely_and_the_answers_stay(wide, digits_examples, tmp_path):
    sizes = {}
    for precision in ("float32", "float16"):
        for sparse in (False, True):
            folder = tmp_path / f"{precision} {sparse}"
            facts = TFLITE.export(wide, digits_examples, folder, precision, sparse=sparse)
            sizes[precision, sparse] = (folder / "Format-Serving/tflite").stat().st_size
            assert facts["ops"]["sparse"] == (1 if sparse else 0) and facts["verified"]["run"]
    assert sizes["float32", True] < 0.65 * sizes["float32", False]
    assert sizes["float16", True] < 0.75 * sizes["float16", False]


@pytest.mark.parametrize("precision", ["dynamic", "int8"])
def test_a_sparse_file_that_litert_converts_but_does_not_load_is_refused(wide, digits_examples, tmp_path, precision):
    with pytest.raises(ComponentError) as error:
        TFLITE.export(wide, digits_examples, tmp_path / "out", precision, sparse=True)
    assert error.value.received.startswith(f"a sparse {precision} file, which LiteRT converts but does not load")
    assert error.value.expected == "sparse with precision float32 or float16"


def test_sparse_without_zeros_is_refused(digits_model, tmp_path):
    with pytest.raises(ComponentError, match="no layer's weights are mostly zeros") as error:
        TFLITE.export(digits_model, None, tmp_path / "out", sparse=True)
    assert "prune it first" in error.value.fix


def test_the_card_says_how_stable_the_ranges_are(wide, digits_examples, tmp_path):
    first, second = (
        TFLITE.export(wide, digits_examples, tmp_path / str(count), "int8", calibration_count=count)["stability"]
        for count in (10, 400)
    )
    assert first["activations"] == second["activations"] >= 4 and first["least_stable"]
    assert second["median_difference"] < first["median_difference"] <= first["largest_difference"] <= 1


@pytest.mark.parametrize(("moved", "told"), [(0.1, False), (0.6, True)])
def test_the_last_line_tells_when_other_examples_would_give_other_ranges(digits_lite, moved, told):
    made = TFLiteModel(digits_lite)
    made.metadata = {"name": "tflite int8", "verified": {"run": False, "reason": "Flex"}}
    made.metadata["stability"] = {"largest_difference": moved, "least_stable": "relu"}
    assert ("the range of relu is another one, by 60%" in summarize(made)) == told


def test_what_cannot_be_asked_for_is_refused_in_the_first_second(wide, digits_examples, tmp_path):
    for given, received, fix in [
        ({"recipe": ["first=int4"]}, "precision='float32'", "write for example"),
        ({"recipe": ["first"], "precision": "int4"}, "recipe 'first'", "write for example"),
        ({"recipe": ["first=int5"], "precision": "int4"}, "recipe 'first=int5'", "write for example"),
        ({"recipe": ["(=int4"], "precision": "int4"}, "recipe '(=int4'", "write for example"),
        ({"recipe": ["a=int4x32"], "precision": "int8"}, "recipe 'a=int4x32'", "write for example"),
        ({"sparse": True, "precision": "int4"}, "sparse with precision='int4'", "leave sparse out"),
        ({"sparse": True, "precision": "dynamic", "recipe": ["a=int4"]}, "and a recipe", "leave sparse out"),
        ({"max_degradation": 0.1}, "max_degradation=0.1 without examples", "pass examples=PATH"),
        ({"max_degradation": 1.5}, "max_degradation=1.5", "change the value"),
    ]:
        examples = {"examples": str(digits_examples)} if given.get("precision") == "int8" else {}
        with pytest.raises(ComponentError) as error:
            export_tflite(str(wide), str(tmp_path / "out"), **examples, **given)
        assert received in error.value.received and fix in error.value.fix, given
    assert not (tmp_path / "out").exists()


def test_the_component_takes_a_recipe_from_its_door(wide, digits_examples, tmp_path):
    out = export_tflite(
        str(wide), str(tmp_path / "out"), str(digits_examples), precision="int4", recipe=["digit=float32"]
    )["exported"]
    assert out.card["name"] == "tflite int4" and out.card["parameters"]["recipe"] == ["digit=float32"]
    assert schema.TensorType.FLOAT32 in weights(tmp_path / "out").values()
