"""Test configure_runtime: the same model, measured, tested and pushed with another setting."""

import contextlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from tests.conftest import write_examples
from tfopt import runtimes
from tfopt.artifacts import Blessing, Model, SavedModel
from tfopt.components.benchmark.machine_conditions import choose_cores, describe_tensorflow
from tfopt.components.benchmark.model_process import ModelProcess, RuntimeProcesses
from tfopt.components.configure_runtime.component import configure_runtime
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.loaded_models import LoadedModel, ModelPool
from tfopt.components.push_model.component import push_model
from tfopt.components.validate_serving.component import validate_serving
from tfopt.errors import ComponentError
from tfopt.processes import preloaded_processes
from tfopt.runtimes import environment

NEWER = "flags\t\t: fpu sse4_1 avx2 avx512f avx512_vnni\n"
OLDER = "flags\t\t: fpu sse4_1 avx2 avx512f fma\n"
STORED = {"x": runtimes.TensorSpec("float32", (None, 3))}


@pytest.fixture
def model(tmp_path) -> Path:
    """Save a bare SavedModel of one product."""
    import tensorflow as tf

    module = tf.Module()
    factor = tf.constant(np.eye(3, 2), tf.float32)
    specs = [tf.TensorSpec([None, 3], tf.float32, name="x")]
    module.serve = tf.function(lambda x: {"y": x @ factor}, input_signature=specs)
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.serve)
    return tmp_path / "model"


def configure(model: Path, folder: Path, **settings) -> SavedModel:
    return configure_runtime(model, folder, **settings)["configured"]


def onednn_settings(model: Path, folder: Path) -> dict:
    """Return TensorFlow's oneDNN settings in the process that `benchmark` starts for a model."""
    with (
        RuntimeProcesses(choose_cores(1), folder) as origins,
        ModelProcess(Model(model), origins, folder / "log") as started,
    ):
        started.renew()
        started.call("load", str(model), "serving_default", 1)
        return describe_tensorflow(started.call("facts")["tensorflow"], started.read_log())["onednn"]


@pytest.mark.nightly  # daily: what the default is
def test_other_is_the_opposite_of_the_default_in_the_benchmark_process(model, tmp_path, monkeypatch):
    monkeypatch.delenv(environment.ONEDNN, raising=False)
    configured = configure(model, tmp_path / "made")
    other = onednn_settings(configured.path, tmp_path)
    assert other["enabled"] is not environment.has_onednn()  # test_benchmark.py compares it with the default
    assert Model(configured.path).name == f"model, oneDNN {'on' if other['enabled'] else 'off'}"


@pytest.mark.parametrize(("variable", "cpuinfo", "on"), [
    (None, NEWER, True), (None, OLDER, False), ("1", OLDER, True), ("0", NEWER, False), ("false", NEWER, False),
])  # fmt: skip
def test_the_default_follows_from_the_variable_and_the_cpu(tmp_path, monkeypatch, variable, cpuinfo, on):
    monkeypatch.delenv(environment.ONEDNN, raising=False)
    if variable:
        monkeypatch.setenv(environment.ONEDNN, variable)
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert environment.has_onednn(tmp_path / "cpuinfo") is on


@pytest.mark.parametrize("onednn", [pytest.param("on", marks=pytest.mark.nightly), "off"])
def test_only_the_variable_is_added_and_changes_the_digest(model, tmp_path, onednn):
    configured = configure(model, tmp_path / "made", onednn=onednn)
    assert environment.read_variables(Model(configured.path)) == {"TF_ENABLE_ONEDNN_OPTS": str(int(onednn == "on"))}
    serving = configured.path / "Format-Serving"
    files = {file.relative_to(serving) for file in serving.rglob("*") if file.is_file()}
    assert files - {environment.FILE} == {file.relative_to(model) for file in model.rglob("*") if file.is_file()}
    assert (serving / "saved_model.pb").read_bytes() == (model / "saved_model.pb").read_bytes()
    assert serving / environment.FILE in Model(configured.path).payload()
    again = configure(configured.path, tmp_path / "again", onednn="on" if onednn == "off" else "off")
    assert environment.read_variables(Model(again.path)) != environment.read_variables(Model(configured.path))
    assert len({Model(model).digest, Model(configured.path).digest, Model(again.path).digest}) == 3


def test_the_pushed_model_records_the_variables_of_its_server(model, tmp_path, caplog):
    configured = configure(model, tmp_path / "made", onednn="off")
    Blessing(tmp_path / "yes").write(
        {"blessed": True, "reason": "better", "model_digest": Model(configured.path).digest}
    )
    with caplog.at_level("INFO", "tfopt"):
        pushed = push_model(configured.path, tmp_path / "yes", tmp_path / "out", destination=str(tmp_path / "to"))[
            "pushed"
        ]
    assert pushed.read()["environment"] == {"TF_ENABLE_ONEDNN_OPTS": "0"}
    assert pushed.metadata["environment"] == "TF_ENABLE_ONEDNN_OPTS=0"
    assert "start its server with the same variables" in caplog.text and "TF_ENABLE_ONEDNN_OPTS=0" in caplog.text
    assert json.loads((tmp_path / "to/1" / environment.FILE).read_text()) == {"TF_ENABLE_ONEDNN_OPTS": "0"}


def test_a_model_runs_in_a_process_with_its_variables_unless_this_one_has_them(model, tmp_path, monkeypatch):
    configured, x = configure(model, tmp_path / "made"), {"x": np.ones((2, 3), np.float32)}
    ((name, value),) = environment.read_variables(configured).items()
    with runtimes.load(configured) as runtime:
        (process,) = runtime_processes()
        assert process.environ()[name] == value
        assert process.environ()["NVIDIA_TF32_OVERRIDE"] == "0"  # its outputs are compared, its speed is not measured
        assert runtime.run(x)["y"].tolist() == runtimes.load(Model(model)).run(x)["y"].tolist()
        with pytest.raises(ComponentError, match="input 'x': float64"):
            runtime.run({"x": np.ones((2, 3))})
        process.kill()
        with pytest.raises(ComponentError, match=f"with {name}={value}: the process was killed by SIGKILL"):
            runtime.run(x)
    assert not runtime_processes()
    monkeypatch.setenv(name, value)
    with runtimes.load(configured):
        assert not runtime_processes()


def test_texts_are_sent_to_the_process(tmp_path):
    import tensorflow as tf

    serve = tf.function(lambda word: {"y": tf.strings.upper(word)}, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(tf.Module(), str(tmp_path / "model"), signatures=serve)
    environment.add_variables(tmp_path / "model", {environment.ONEDNN: str(int(not environment.has_onednn()))})
    with runtimes.load(Model(tmp_path / "model")) as runtime:
        assert len(runtime_processes()) == 1
        assert runtime.run({"word": np.array([b"one", b"two"], object)})["y"].tolist() == [b"ONE", b"TWO"]


def runtime_processes() -> list[psutil.Process]:
    """Return the processes that run models: forks of the servers of this session."""
    processes = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if preloaded_processes.__name__ in child.cmdline():
                processes += child.children()
    return processes


def test_evaluate_runs_the_model_with_its_variables(model, tmp_path):
    examples = tmp_path / "examples/Split-eval/data_tfrecord-00000-of-00001.gz"
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    write_examples(examples, {"x": x, "label": x[:, :2].argmax(1)})
    shutil.copytree(model, tmp_path / "broken")
    environment.add_variables(tmp_path / "broken", {"PYTHONHOME": "/nowhere"})  # Python does not start with it
    models = [tmp_path / "broken", configure(model, tmp_path / "made").path]
    content = evaluate(model, models, tmp_path / "examples", tmp_path / "evaluation")["evaluation"].read()
    parent, broken, configured = content["models"]
    assert "PYTHONHOME=/nowhere: the process ended" in broken["error"]
    assert (
        configured["error"] is None
        and configured["metrics"]["accuracy"]["value"] == parent["metrics"]["accuracy"]["value"] == 1
    )
    assert not runtime_processes()


def test_a_model_that_cannot_be_evaluated_leaves_no_process(model, tmp_path, monkeypatch):
    configured, load, loaded = configure(model, tmp_path / "made"), runtimes.load, []
    monkeypatch.setattr(
        runtimes, "load", lambda model, **named: loaded.append(load(model, **named)) or loaded[-1]
    )  # not left to be collected
    models = ((str(configured.path), "made"),)
    plan = SimpleNamespace(
        output=None,
        features={},
        settings=SimpleNamespace(label="label"),
        models=models,
        signature="serving_default",
        crashed={},
    )
    assert "no feature 'x'" in LoadedModel(str(configured.path), plan).failure
    assert loaded and not runtime_processes()


def test_model_processes_end_with_a_failing_step(model, tmp_path):
    configured = configure(model, tmp_path / "made")
    models = ((str(configured.path), "made"),)
    settings = SimpleNamespace(label="label")
    plan = SimpleNamespace(
        output=None, features=STORED, settings=settings, models=models, signature="serving_default", crashed={}
    )
    with pytest.raises(RuntimeError), ModelPool().borrow(plan) as (model,):
        assert not model.failure and runtime_processes()
        raise RuntimeError
    assert not runtime_processes()


def test_validate_serving_runs_the_model_with_its_variables(model, tmp_path):
    environment.add_variables(model, {"PYTHONHOME": "/nowhere"})  # Python does not start with it
    report = validate_serving(model, tmp_path / "infra")["infra_blessing"].read()
    assert not report["blessed"] and "the process ended" in report["reason"]
