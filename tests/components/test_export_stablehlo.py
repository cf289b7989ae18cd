"""Test `export_stablehlo`: portable artifacts, their order of tensors, fixed sizes, parity and refusals."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import write_split
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import Examples, Model, StableHLOModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.component import find
from tfopt.components.export_stablehlo.component import export_stablehlo
from tfopt.components.export_stablehlo.export import export
from tfopt.components.export_stablehlo.parameters import StableHLOConversion
from tfopt.errors import ComponentError


def run_export(model: Path, folder: Path, examples: Path | None = None, **settings) -> dict:
    """Run the work of the component in this process."""
    folder.mkdir(parents=True)
    return export(Model(model), Examples(examples) if examples else None, folder, StableHLOConversion(**settings))


def test_the_component_writes_a_portable_artifact_that_matches_its_parent(digits_model, digits_examples, tmp_path):
    out = tmp_path / "größe 1"
    exported = export_stablehlo(digits_model, out, digits_examples, batch_size=4)["exported"]
    served = out / "Format-Serving"
    assert {file.name for file in served.iterdir()} == {"model.mlirbc", "model.json"}
    described = json.loads((served / "model.json").read_text())
    content = (served / "model.mlirbc").read_bytes()
    assert content[:4] == b"ML\xefR" and f"StableHLO_v{described['stablehlo_version']}".encode() in content[:40]
    assert described["inputs"] == [{"name": "image", "dtype": "float32", "shape": [4, 8, 8, 1]}]
    assert described["outputs"] == [{"name": "digit", "dtype": "float32", "shape": [4, 10]}]
    facts = exported.card.facts
    assert (facts["name"], facts["format"], facts["batch_size"]) == ("stablehlo", "stablehlo", 4)
    assert facts["verified"]["records"] == 256 and facts["verified"]["outputs"]["digit"]["relative_error"] < 1e-5
    assert exported.payload() == [served / "model.json", served / "model.mlirbc"]
    image = np.random.default_rng(0).uniform(0, 16, (4, 8, 8, 1)).astype(np.float32)
    with runtimes.load(exported) as child, runtimes.load(Model(digits_model)) as parent:
        assert child.inputs == {"image": TensorSpec("float32", (4, 8, 8, 1))}
        np.testing.assert_allclose(
            child.run({"image": image})["digit"], parent.run({"image": image})["digit"], atol=1e-5
        )
        with pytest.raises(ComponentError, match="image"):
            child.run({"image": image[:3]})


@pytest.mark.nightly
def test_the_same_model_is_the_same_file(digits_model, tmp_path):
    files = [export_stablehlo(digits_model, tmp_path / name)["exported"].stablehlo for name in ("a", "b")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_names_have_the_positions_of_the_program(tmp_path):
    """Write a program whose tensors differ in type and are not in alphabetical order, and swap two of equal type."""

    def serve(zeta, alpha, mask):
        return {"z": zeta - 2 * alpha, "a": tf.cast(alpha, tf.float16), "m": tf.where(mask, 1, 0), "same": alpha}

    specs = {name: ([None, 2], tf.float32) for name in ("zeta", "alpha")}
    model = saved(tmp_path / "model", serve, **specs, mask=([None], tf.bool))
    facts = run_export(model, tmp_path / "out", batch_size=2)
    assert facts["stablehlo_version"] == "0.9.0"
    zeta, alpha = np.array([[5, 6], [7, 8]], np.float32), np.array([[1, 0], [0, 1]], np.float32)
    outputs = runtimes.load(StableHLOModel(tmp_path / "out")).run(
        {"mask": np.array([True, False]), "alpha": alpha, "zeta": zeta}
    )
    assert outputs["z"].tolist() == [[3, 6], [7, 6]] and outputs["same"].tolist() == alpha.tolist()
    assert outputs["a"].dtype == np.float16 and outputs["m"].tolist() == [1, 0]


def test_erf_and_sorts_are_no_operations_of_xla_only(tmp_path):
    def serve(x):
        return {"erf": tf.math.erf(x), "half": tf.math.erf(tf.cast(x, tf.float16)), "top": tf.math.top_k(x, 2).values}

    facts = run_export(saved(tmp_path / "model", serve, x=([None, 5], tf.float32)), tmp_path / "out")
    assert facts["batch_size"] == 1 and facts["verified"]["outputs"]["erf"]["relative_error"] < 1e-6


@pytest.mark.nightly
def test_an_operation_of_a_newer_version_is_written_in_it(tmp_path):
    model = saved(tmp_path / "model", lambda x: {"y": tf.tan(x)}, x=([2], tf.float32))
    assert run_export(model, tmp_path / "out")["stablehlo_version"] > "1.0.0"


@pytest.mark.nightly
def test_recurrent_layers_are_loops(tmp_path):
    import keras

    steps = keras.Input((5, 3), name="steps")
    keras.Model(steps, keras.layers.LSTM(4)(steps)).export(tmp_path / "model", verbose=False)
    facts = run_export(tmp_path / "model", tmp_path / "out", batch_size=3)
    assert facts["verified"]["outputs"]["output_0"]["relative_error"] < 1e-5


@pytest.mark.nightly
def test_a_fixed_batch_size_is_preserved(tmp_path):
    model = saved(tmp_path / "model", lambda x: {"y": tf.nn.softmax(x)}, x=([4, 3], tf.float32))
    facts = run_export(model, tmp_path / "out", batch_size=2)
    assert "batch_size" not in facts
    assert runtimes.load(StableHLOModel(tmp_path / "out")).inputs["x"].shape == (4, 3)


REFUSED = {
    "open length": (lambda x: {"y": tf.reduce_sum(x, 1)}, [None, None], "input 'x': float32[?,?]"),
    "size by data": (lambda x: {"y": tf.unique(x[:, 0]).y}, [None, 3], "Unique: the size of its output depends on"),
    "shape by data": (lambda x: {"y": tf.math.bincount(tf.cast(x[:, 0], tf.int32))}, [None, 3], "DenseBincount"),
    "no kernel": (lambda x: {"y": tf.linalg.eigvals(x)}, [None, 3, 3], "Eig: XLA has no kernel for it"),
    "library": (lambda x: {"y": tf.linalg.eigh(x)[0]}, [None, 3, 3], "operations of XLA only: Eigh"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_xla_cannot_compile_is_refused(kind, tmp_path):
    function, shape, received = REFUSED[kind]
    model = saved(tmp_path / "model", function, x=(shape, tf.float32))
    with pytest.raises(ComponentError) as error:
        run_export(model, tmp_path / "out")
    assert received in error.value.received and error.value.fix


@pytest.mark.nightly
def test_text_stays_in_a_saved_model_before_the_program(tmp_path):
    words = tf.constant(["good", "bad", "so"])
    weights = tf.constant(np.random.default_rng(0).normal(size=(4, 3)), tf.float32)
    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, tf.range(3, dtype=tf.int64)), 3)
    module.serve = tf.function(
        lambda word: {"score": tf.nn.softmax(tf.gather(weights, module.table.lookup(word)))},
        input_signature=[tf.TensorSpec([None], tf.string, name="word")],
    )
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.serve)
    data = write_split(tmp_path / "ex", {"word": np.array([["good"], ["bad"], ["so"], ["what"]] * 5, object)})
    exported = export_stablehlo(tmp_path / "model", tmp_path / "out", data)["exported"]
    assert exported.preprocessing and exported.card.facts["cut"]
    with runtimes.load(exported) as child, runtimes.load(Model(tmp_path / "model")) as parent:
        word = {"word": np.array(["bad", "x", "good"], object)}
        np.testing.assert_allclose(child.run(word)["score"], parent.run(word)["score"], atol=1e-6)


@pytest.mark.parametrize("part", ["model.mlirbc", "model.json"])
def test_damaged_files_are_refused(part, tmp_path):
    run_export(saved(tmp_path / "model", lambda x: {"y": x + 1}, x=([2], tf.float32)), tmp_path / "out")
    file = tmp_path / "out/Format-Serving" / part
    content = file.read_bytes()
    broken = content[: len(content) // 2] if part == "model.mlirbc" else content.replace(b"2", b"3")
    file.write_bytes(broken)
    with pytest.raises(ComponentError, match=r"model\.mlirbc") as error:
        runtimes.load(Model(tmp_path / "out"))
    assert "convert it again" in error.value.fix


def test_has_no_parameters_of_calibration():
    """The file has the precision of the model."""
    names = set(find("export_stablehlo").parameters)
    assert {"split", "seed", "tolerance", "cut_at", "batch_size"} <= names
    assert not {name for name in names if name.startswith("calibration")}
