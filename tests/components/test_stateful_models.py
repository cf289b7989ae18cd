"""Test that recurrent layers which keep state from call to call are converted with their state, or refused for it."""

import keras
import numpy as np
import pytest

from tests.conftest import write_examples
from tfopt import runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.component import find
from tfopt.errors import ComponentError
from tfopt.runtimes.keras import KerasRuntime

BATCH, STEPS, FEATURES = 2, 4, 3
LAYERS = {
    "keras LSTM": ("keras", ".keras", lambda layers, **state: layers.LSTM(6, **state)),
    "keras unrolled GRU": ("keras", ".h5", lambda layers, **state: layers.GRU(6, unroll=True, **state)),
    "tf_keras GRU": ("tf_keras", ".h5", lambda layers, **state: layers.GRU(6, **state)),
    "tf_keras pair": ("tf_keras", ".keras", lambda layers, **state: layers.Bidirectional(layers.LSTM(6, **state))),
}
STATEFUL = (
    ("optimize_graph", None),
    ("fold_batch_norm", None),
    ("export_tflite", "float32"),
    ("export_tflite", "int4"),
)
REFUSED = (
    *((name, None) for name in ("export_onnx", "cast_precision", "compile_xla", "quantize_graph", "export_openvino")),
    *(("export_tflite", precision) for precision in ("int8", "int16x8")),
)


def cases(components):
    """Return each kind of layers with each component; the first of both run on every change, the others nightly."""
    pairs = [(kind, *component) for kind in LAYERS for component in components]
    return [pytest.param(*pair, marks=[pytest.mark.nightly] if number else []) for number, pair in enumerate(pairs)]


def save(folder, kind, *, stateful=True):
    library, suffix, layer = LAYERS[kind]
    keras = pytest.importorskip(library)
    keras.utils.set_random_seed(0)
    sequence = keras.Input(batch_shape=(BATCH if stateful else None, STEPS, FEATURES), name="sequence")
    flow = layer(keras.layers, stateful=stateful)(sequence)
    model = keras.Model(sequence, keras.layers.Dense(2, name="score")(flow))
    folder.mkdir()
    model.save(folder / f"model{suffix}")
    return KerasModel(folder / f"model{suffix}")


def run(name, precision, model, output, examples):
    component = find(name)
    (port,) = component.outputs
    settings = {"precision": precision} if precision else {}
    return component(model=model, examples=examples, **{port: output}, **settings)[port]


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    generator = np.random.default_rng(0)
    for split, count in (("train", 60), ("eval", 40)):
        columns = {"sequence": generator.normal(size=(count, STEPS, FEATURES)).astype(np.float32)}
        columns["label"] = generator.integers(0, 2, count)
        write_examples(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz", columns)
    return Examples(folder)


@pytest.mark.parametrize(("kind", "name", "precision"), cases(STATEFUL))
def test_state_passes_from_call_to_call(kind, name, precision, examples, tmp_path):
    model = save(tmp_path / "keras", kind)
    calls = np.random.default_rng(1).normal(size=(6, BATCH, STEPS, FEATURES)).astype(np.float32)
    with KerasRuntime(model, None) as parent:
        assert parent.inputs["sequence"].shape == (BATCH, STEPS, FEATURES)
        expected = [parent.run({"sequence": one})["score"] for one in calls]
        assert np.abs(parent.run({"sequence": calls[0]})["score"] - expected[0]).max() > 0.01  # it depends on the state
    with runtimes.load(run(name, precision, model, tmp_path / "made", examples)) as child:
        assert child.inputs["sequence"].shape == (BATCH, STEPS, FEATURES)
        received = [child.run({"sequence": one})["score"] for one in calls]
    np.testing.assert_allclose(received, expected, atol=0.1 if precision == "int4" else 1e-5)


@pytest.mark.parametrize(("kind", "name", "precision"), cases(REFUSED))
def test_others_name_the_state_and_take_the_model_without_it(kind, name, precision, examples, tmp_path):
    model = save(tmp_path / "stateful", kind)
    with pytest.raises(ComponentError, match=r"while it serves: .*AssignVariableOp") as error:
        run(name, precision, model, tmp_path / "made", examples)
    if precision:
        assert error.value.fix == "choose float32, float16, dynamic or int4"
        for other in ("float32", "float16", "dynamic", "int4"):
            assert run(name, other, model, tmp_path / other, examples)
    else:
        assert error.value.fix.startswith("build it again with stateful=False")
        assert run(name, precision, save(tmp_path / "plain", kind, stateful=False), tmp_path / "made", examples)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.nightly) for kind in LAYERS])
def test_inspect_and_evaluate_run_it(kind, examples, tmp_path):
    model = save(tmp_path / "keras", kind)
    assert find("inspect_model")(model, tmp_path / "inspection")["inspection"].read()["parameters"]["count"]
    evaluation = tmp_path / "evaluation"
    report = find("evaluate")(baseline=model, candidates=[model], examples=examples, evaluation=evaluation)[
        "evaluation"
    ]
    assert all(row.get("error") is None for row in report.read()["models"])


def test_batch_norms_that_keras_exports_in_training_mode_are_refused_and_the_keras_file_is_taken(tmp_path):
    image = keras.Input((8, 8, 1), name="image")
    model = keras.Model(image, keras.layers.BatchNormalization(name="y")(keras.layers.Resizing(4, 4)(image)))
    model.export(str(tmp_path / "exported"), verbose=False)
    model.save(tmp_path / "model.keras")
    with pytest.raises(ComponentError, match="changes its state while it serves") as error:
        find("export_onnx")(model=tmp_path / "exported", exported=tmp_path / "refused")
    assert "pass the .keras file, if batch norms change" in error.value.fix
    file = find("export_onnx")(model=tmp_path / "model.keras", exported=tmp_path / "file")["exported"]
    rows = np.random.default_rng(0).normal(5, 3, (4, 8, 8, 1)).astype(np.float32)
    with runtimes.load(file) as runtime:
        np.testing.assert_allclose(runtime.call({"image": rows})["y"], model.predict(rows, verbose=0), rtol=1e-4)
