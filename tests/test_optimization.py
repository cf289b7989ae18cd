"""Test `tfopt.optimize`: from a model in memory to a selected one, and what the result shows."""

import html
import importlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from sklearn.datasets import load_digits

import tfopt
from tfopt.artifacts import Model
from tfopt.data.object_columns import Naming
from tfopt.errors import ComponentError
from tfopt.optimization import OptimizationResult, OptimizedModel
from tfopt.run_records.cleanup import remove_run
from tfopt.run_records.run_record import read_records

ROWS, DIGITS = load_digits(return_X_y=True)
HELD_OUT = ROWS[900:], DIGITS[900:]
# By size, whose comparison no other process on the machine disturbs.
SHORT = {"formats": ["tflite float32"], "objective": "size", "seconds": 0.1, "batch_sizes": ["1"]}


def trained(package: str) -> object:
    library = importlib.import_module(package)
    library.utils.set_random_seed(0)
    model = library.Sequential(
        [library.layers.Dense(32, activation="relu"), library.layers.Dense(10, activation="softmax")]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(ROWS[:900], DIGITS[:900], epochs=5, verbose=0)
    return model


@pytest.fixture(scope="module", params=["keras", pytest.param("tf_keras", marks=pytest.mark.nightly)])
def model(request) -> object:
    return trained(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder whose path has a space."""
    return tmp_path_factory.mktemp("my runs") / "digits"


@pytest.fixture(scope="module")
def result(model, folder: Path) -> Iterator[OptimizationResult]:
    with pytest.MonkeyPatch.context() as patch:
        parameters = tfopt.find("validate_serving").parameters
        patch.setitem(parameters, "seconds", replace(parameters["seconds"], default=0.05))
        yield tfopt.optimize(model, HELD_OUT, path=folder, goals=["accuracy max_degradation 3%"], **SHORT)


def test_the_selected_model_predicts_what_its_file_computes(result, model):
    assert (result.model.name, result.model.format) == ("tflite float32", "tflite")
    assert result.decision.selected == "tflite float32"
    assert result.decision.blessed
    file = result.model.path
    assert result.model.size == file.stat().st_size
    interpreter = Interpreter(str(file))
    interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], [5, 64])
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], ROWS[:5].astype(np.float32))
    interpreter.invoke()
    predicted = result.model.predict(ROWS[:300])
    assert np.allclose(predicted[:5], interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), atol=1e-6)
    assert np.allclose(predicted, model.predict(ROWS[:300], verbose=0), atol=1e-5)
    with result.model.load() as runtime:
        assert list(runtime.inputs) == list(result.model.naming.inputs)


def test_all_given_records_are_in_a_split_and_most_evaluate(result):
    evaluation = result.steps["evaluate"].outputs["evaluation"].load()
    assert evaluation.split == "eval"
    assert 0.7 * len(HELD_OUT[1]) < evaluation.counts.evaluated < 0.9 * len(HELD_OUT[1])


def test_the_result_shows_the_page_and_the_table(result, folder: Path):
    shown = result._repr_html_()
    assert re.search("<td>tflite float32</td>.*<iframe sandbox", shown, re.DOTALL)
    assert html.escape(str(result.model.path)) in shown
    assert str(result) == repr(result)
    assert re.search(r"sequential\S* +\d\d\.\d+% ", str(result))
    assert re.search(r"tflite float32 +\d\d\.\d+% .* selected: ", str(result))
    assert str(folder / "artifacts") in str(result)
    assert result.path == folder


def test_a_second_call_reuses_all_steps_but_the_push(result, model, folder: Path):
    again = tfopt.optimize(model, HELD_OUT, path=folder, goals=["accuracy max_degradation 3%"], **SHORT)
    assert [name for name, step in again.steps.items() if not step.reused] == ["push_model"]
    assert again.model.path == result.model.path
    assert next(iter(read_records(folder).values())).state == "succeeded"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"formats": ["tflight"]}, "formats: 'tflight'"),
        ({"secnds": 1}, "did you mean seconds"),
        ({"goals": ["accuracy above"]}, "goal 'accuracy above'"),
        ({"path": "runs/[1]"}, "in a path"),
    ],
)
def test_wrong_values_fail_before_a_step(values: dict, words: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
    with pytest.raises(ComponentError, match=re.escape(words)):
        tfopt.optimize(model, HELD_OUT, **values)
    assert not list(tmp_path.rglob("artifacts"))


def two_outputs() -> keras.Model:
    rows = keras.Input((64,), name="rows")
    return keras.Model(rows, [keras.layers.Dense(10, name="digit")(rows), keras.layers.Dense(1, name="ink")(rows)])


@pytest.mark.parametrize(
    ("labels", "values", "chosen"),
    [
        ([DIGITS, ROWS.sum(1)], {}, "digit"),
        ({"ink": ROWS.sum(1)}, {}, "ink"),
        ({"ink": ROWS.sum(1), "digit": DIGITS}, {"output": "ink"}, "ink"),
    ],
)
def test_the_first_output_with_labels_is_evaluated(labels, values: dict, chosen: str, tmp_path: Path, monkeypatch):
    class Stopped(Exception):  # noqa: N818  (no error)
        """Ends the call before the run."""

    def stop(dag, values, *others) -> None:
        raise Stopped(values["output"], values["label"])

    monkeypatch.setattr("tfopt.optimization.run_recorded", stop)
    with pytest.raises(Stopped) as stopped:
        tfopt.optimize(two_outputs(), (ROWS, labels), path=tmp_path, **values)
    assert stopped.value.args == (chosen, chosen)


def test_several_outputs_and_one_label_are_refused(tmp_path: Path):
    with pytest.raises(ComponentError, match='pass output="digit"'):
        tfopt.optimize(two_outputs(), (ROWS, DIGITS), path=tmp_path)


def test_a_model_of_a_fixed_batch_and_two_outputs_predicts_each_record(tmp_path: Path):
    rows = keras.Input(batch_shape=(4, 64), name="rows")
    model = keras.Model(rows, {"double": keras.layers.Rescaling(2)(rows), "half": keras.layers.Rescaling(0.5)(rows)})
    model.export(tmp_path / "model", verbose=False)
    optimized = OptimizedModel(Model(tmp_path / "model"), Naming("", {"rows": None}))
    predicted = optimized.predict(ROWS[:6])
    assert np.allclose(predicted["double"], 2 * ROWS[:6])
    assert np.allclose(predicted["half"], ROWS[:6] / 2)


@pytest.mark.nightly
@pytest.mark.parametrize("count", [20, 897])
def test_a_regression_of_two_inputs_states_what_the_records_can_show(count: int, tmp_path: Path):
    first, second = keras.Input((32,), name="top"), keras.Input((32,), name="bottom")
    summed = keras.layers.Dense(1, kernel_initializer="ones")(keras.layers.Concatenate()([first, second]))
    model = keras.Model([first, second], summed)
    data = {"top": ROWS[:count, :32], "bottom": ROWS[:count, 32:]}, ROWS[:count].sum(1)
    result = tfopt.optimize(model, data, path=tmp_path, **SHORT)
    metrics = result.steps["evaluate"].outputs["evaluation"].load().models[0].metrics
    assert next(iter(metrics)) == "mean_absolute_error"
    assert np.allclose(result.model.predict(data[0])[:, 0], data[1], rtol=1e-3)
    assert re.search(r"\d+ records\s+cannot\s+exclude\s+a\s+loss", str(result))


def test_removing_the_run_removes_what_was_saved(tmp_path: Path):
    (tmp_path / "run" / "sources" / "0123456789abcdef" / "model").mkdir(parents=True)
    assert remove_run(tmp_path / "run")
    assert not (tmp_path / "run").exists()
