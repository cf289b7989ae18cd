"""Test the saved_model runtime: dtypes, order, signatures, threads and damaged folders."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.runtimes import formulas
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.runtimes.saved_model import FunctionRuntime, SessionRuntime
from tfopt.saved_models.saved_model import read, write


@pytest.fixture(scope="module")
def forms(tmp_path_factory) -> dict[str, Path]:
    """A SavedModel with inputs zeta, words, alpha and outputs z, upper, a, not in alphabetical order."""

    def serve(zeta, words, alpha):
        return {"z": zeta * 2, "upper": tf.strings.upper(words), "a": zeta + tf.cast(alpha, tf.float32)}

    specs = {"zeta": ([None, 2], tf.float32), "words": ([None], tf.string), "alpha": ([None, 1], tf.int64)}
    folder = tmp_path_factory.mktemp("mixed")
    plain = formulas.saved(folder / "model", serve, **specs)
    write(read(Path(plain)), folder / "frozen")
    return {"as exported": plain, "frozen": folder / "frozen"}


@pytest.fixture(params=["as exported", "frozen"])
def mixed(forms, request) -> Path:
    return forms[request.param]


def test_variables_and_frozen_graphs_are_in_a_session_and_functions_of_inputs_are_called(mixed, digits_model, tmp_path):
    is_frozen = not (Path(mixed) / "fingerprint.pb").exists()
    assert isinstance(runtimes.load(Model(mixed)), SessionRuntime if is_frozen else FunctionRuntime)
    write(read(Path(digits_model) / "Format-Serving"), tmp_path / "frozen")
    images = np.random.default_rng(0).random((5, 8, 8, 1), np.float32)
    with runtimes.load(Model(digits_model)) as before, runtimes.load(Model(tmp_path / "frozen")) as after:
        assert isinstance(before, SessionRuntime) and isinstance(after, SessionRuntime)
        assert (before.inputs, before.outputs) == (after.inputs, after.outputs)
        expected, received = before.run({"image": images}), after.run({"image": images})
    for name, array in expected.items():
        np.testing.assert_allclose(received[name], array, atol=1e-5)


def test_inputs_and_outputs_have_names_and_may_be_text(mixed):
    runtime = runtimes.load(Model(mixed))
    assert runtime.inputs == {
        "zeta": TensorSpec("float32", (None, 2)),
        "words": TensorSpec("string", (None,)),
        "alpha": TensorSpec("int64", (None, 1)),
    }
    assert list(runtime.outputs) == ["a", "upper", "z"]
    zeta, alpha = np.array([[1, 2], [3, 4]], np.float32), np.array([[10], [20]])
    for words in (np.array(["a", "ß"], object), np.array(["a", "ß"]), np.array([b"a", "ß".encode()])):
        answer = runtime.run({"words": words, "alpha": alpha, "zeta": zeta})
        assert answer["upper"].tolist() == [b"A", "ß".encode()]  # bytes beyond ASCII stay as they are
        assert answer["a"].tolist() == [[11, 12], [23, 24]] and answer["z"].tolist() == [[2, 4], [6, 8]]


def test_many_inputs_and_outputs_are_in_alphabetical_order(tmp_path):
    """TensorFlow iterates over sets of names, whose order differs from process to process."""
    specs = dict.fromkeys("hbfdgace", ([None], tf.float32))
    outputs = [f"{name}_out" for name in specs]

    def doubled(h, b, f, d, g, a, c, e):
        return {name: 2 * tensor for name, tensor in zip(outputs, (h, b, f, d, g, a, c, e), strict=True)}

    formulas.saved(tmp_path / "model", doubled, **specs)
    write(read(tmp_path / "model"), tmp_path / "frozen")
    for form in ("model", "frozen"):
        runtime = runtimes.load(Model(tmp_path / form))
        assert list(runtime.inputs) == sorted(specs)
        assert list(runtime.outputs) == sorted(outputs)


@pytest.mark.parametrize(
    ("change", "received", "fix"),
    [
        ({"zeta": None, "zetta": np.ones((1, 2), np.float32)}, "no input 'zeta'", "did you mean zetta?"),
        ({"qqq": np.ones(1)}, "input 'qqq'", "known: alpha, words, zeta"),
        ({"zeta": np.ones((1, 3), np.float32)}, "input 'zeta': float32[1,3]", "reshape"),
        ({"zeta": np.ones(2, np.float32)}, "input 'zeta': float32[2]", "reshape"),
        ({"zeta": np.ones((1, 2))}, "input 'zeta': float64[1,2]", "convert it to float32"),
        ({"words": np.ones(1, np.float32)}, "input 'words': float32[1]", "convert it to string"),
    ],
)
def test_wrong_names_dtypes_and_shapes_are_rejected_after_valid_calls(mixed, change, received, fix):
    runtime = runtimes.load(Model(mixed))
    good = {"zeta": np.ones((1, 2), np.float32), "words": np.array(["a"]), "alpha": np.ones((1, 1), np.int64)}
    runtime.run(good)
    with pytest.raises(ComponentError) as error:
        runtime.run({name: array for name, array in (good | change).items() if array is not None})
    assert error.value.received == received and fix in error.value.fix
    assert runtime.run(good)["z"].tolist() == [[2, 2]]


def test_nan_is_passed_through(mixed):
    arrays = {"zeta": np.array([[np.nan, 1]], np.float32), "words": np.array(["a"]), "alpha": np.ones((1, 1), np.int64)}
    np.testing.assert_array_equal(runtimes.load(Model(mixed)).run(arrays)["z"], [[np.nan, 2]])


def test_an_input_of_unknown_rank_accepts_any_rank(tmp_path):
    model = formulas.saved(tmp_path / "model", lambda x: {"sum": tf.reduce_sum(x)}, x=(None, tf.float32))
    runtime = runtimes.load(Model(model))
    assert str(runtime.inputs["x"]) == "float32[...]"
    assert runtime.run({"x": np.ones((2, 3, 4), np.float32)})["sum"] == 24


def test_another_signature_is_selected_by_name(tmp_path):
    module = tf.Module()
    for name, factor in (("serving_default", 1.0), ("tripled", 3.0)):
        module.__setattr__(
            name, tf.function(lambda x, by=factor: {"y": by * x}, input_signature=[tf.TensorSpec([None])])
        )
    signatures = {"serving_default": module.serving_default, "tripled": module.tripled}
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=signatures)
    runtime = runtimes.load(Model(tmp_path / "model"), signature="tripled")
    assert runtime.run({"x": np.ones(2, np.float32)})["y"].tolist() == [3, 3]
    with pytest.raises(ComponentError) as error:
        runtimes.load(Model(tmp_path / "model"), signature="trippled")
    assert "no signature 'trippled'" in error.value.received and error.value.fix == "did you mean tripled?"


def test_a_saved_model_without_signatures_is_rejected(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "model"))
    with pytest.raises(ComponentError, match="export it with a signature"):
        runtimes.load(Model(tmp_path / "model"))


@pytest.mark.parametrize(
    ("file", "keep"),
    [("saved_model.pb", 0), ("saved_model.pb", 0.5), ("variables/variables.data-00000-of-00001", 0.5),
     ("variables/variables.index", 0.5), ("variables/variables.index", None)],
)  # fmt: skip
def test_damaged_folders_are_rejected(digits_model, tmp_path, file, keep):
    shutil.copytree(digits_model / "Format-Serving", tmp_path / "größe 1")
    damaged = tmp_path / "größe 1" / file
    if keep is None:
        damaged.unlink()
    else:
        damaged.write_bytes(damaged.read_bytes()[: int(damaged.stat().st_size * keep)])
    with pytest.raises(ComponentError) as error:
        runtimes.load(Model(tmp_path / "größe 1"))
    assert str(tmp_path / "größe 1") in error.value.received
    assert "truncated" in error.value.fix
    if file != "saved_model.pb":
        assert error.value.expected == "a SavedModel that TensorFlow can load"


def test_threads_are_set_in_a_new_process_and_rejected_later(mixed):
    assert run_in_child(formulas.threads_after_loading, mixed, 1, doing="loading") == 1
    runtimes.load(Model(mixed))  # TensorFlow runs now, with its own count
    with pytest.raises(ComponentError, match="fresh process"):
        runtimes.load(Model(mixed), threads=57)
