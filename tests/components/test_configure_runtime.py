"""What `configure_runtime` promises: the same model, measured, tried and pushed with another setting."""

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
from tfopt.components.benchmark.model_environment import cores, tensorflow
from tfopt.components.benchmark.model_process import ModelProcess, Origins
from tfopt.components.configure_runtime.component import configure_runtime
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.loaded_models import Contestant, Pool
from tfopt.components.push_model.component import push_model
from tfopt.components.validate_serving.component import validate_serving
from tfopt.errors import ComponentError
from tfopt.runtimes import environment
from tfopt.runtimes import subprocess_runtime as elsewhere

NEWER = "flags\t\t: fpu sse4_1 avx2 avx512f avx512_vnni\n"
OLDER = "flags\t\t: fpu sse4_1 avx2 avx512f fma\n"
STORED = {"x": runtimes.TensorSpec("float32", (None, 3))}


@pytest.fixture
def plain(tmp_path) -> Path:
    """What looks like a bare SavedModel: nobody loads it here."""
    (tmp_path / "model" / "variables").mkdir(parents=True)
    for name in ("saved_model.pb", "variables/variables.index"):
        (tmp_path / "model" / name).write_bytes(name.encode())
    return tmp_path / "model"


@pytest.fixture
def real(tmp_path) -> Path:
    """A bare SavedModel of one product."""
    import tensorflow as tf

    module = tf.Module()
    factor = tf.constant(np.eye(3, 2), tf.float32)
    specs = [tf.TensorSpec([None, 3], tf.float32, name="x")]
    module.serve = tf.function(lambda x: {"y": x @ factor}, input_signature=specs)
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.serve)
    return tmp_path / "model"


def configured(model: Path, folder: Path, **given) -> SavedModel:
    return configure_runtime(model, folder, **given)["configured"]


def process(model: Path, folder: Path) -> dict:
    """How TensorFlow is set up in the process that `benchmark` starts for a model."""
    with Origins(cores(1), folder) as origins, ModelProcess(Model(model), origins, folder / "log") as started:
        started.renew()
        started.ask("load", str(model), 1)
        return tensorflow(started.ask("facts")["tensorflow"], started.printed())["onednn"]


def test_other_is_what_tensorflow_does_not_do_here_by_itself_and_the_benchmarks_process_does(
    real, tmp_path, monkeypatch
):
    monkeypatch.delenv(environment.ONEDNN, raising=False)
    made = configured(real, tmp_path / "made")
    usual, other = process(real, tmp_path), process(made.path, tmp_path)
    assert usual["TF_ENABLE_ONEDNN_OPTS"] is None
    assert usual["enabled"] is environment.has_onednn()
    assert other["enabled"] is not usual["enabled"]
    assert Model(made.path).name == f"model, oneDNN {'on' if other['enabled'] else 'off'}"


@pytest.mark.parametrize(("said", "described", "on"), [
    (None, NEWER, True), (None, OLDER, False), ("1", OLDER, True), ("0", NEWER, False), ("false", NEWER, False),
])  # fmt: skip
def test_what_tensorflow_would_do_is_known_from_the_variable_and_the_cpu(tmp_path, monkeypatch, said, described, on):
    monkeypatch.delenv(environment.ONEDNN, raising=False)
    if said:
        monkeypatch.setenv(environment.ONEDNN, said)
    (tmp_path / "cpuinfo").write_text(described)
    assert environment.has_onednn(tmp_path / "cpuinfo") is on


@pytest.mark.parametrize("onednn", ["on", "off"])
def test_only_the_variable_is_added_and_counts_in_the_digest(plain, tmp_path, onednn):
    made = configured(plain, tmp_path / "made", onednn=onednn)
    assert environment.read(Model(made.path)) == {"TF_ENABLE_ONEDNN_OPTS": str(int(onednn == "on"))}
    serving = made.path / "Format-Serving"
    files = {file.relative_to(serving) for file in serving.rglob("*") if file.is_file()}
    assert files - {environment.FILE} == {file.relative_to(plain) for file in plain.rglob("*") if file.is_file()}
    assert (serving / "saved_model.pb").read_bytes() == (plain / "saved_model.pb").read_bytes()
    assert serving / environment.FILE in Model(made.path).payload()
    again = configured(made.path, tmp_path / "again", onednn="on" if onednn == "off" else "off")
    assert environment.read(Model(again.path)) != environment.read(Model(made.path))  # and that of the first stays
    assert len({Model(plain).digest, Model(made.path).digest, Model(again.path).digest}) == 3


def test_what_is_pushed_says_how_its_server_must_be_started(plain, tmp_path, caplog):
    made = configured(plain, tmp_path / "made", onednn="off")
    Blessing(tmp_path / "yes").write({"blessed": True, "reason": "so said", "model_digest": Model(made.path).digest})
    with caplog.at_level("INFO", "tfopt"):
        pushed = push_model(made.path, tmp_path / "yes", tmp_path / "out", destination=str(tmp_path / "to"))["pushed"]
    assert pushed.read()["environment"] == {"TF_ENABLE_ONEDNN_OPTS": "0"}
    assert pushed.metadata["environment"] == "TF_ENABLE_ONEDNN_OPTS=0"
    assert "start its server so" in caplog.text and "TF_ENABLE_ONEDNN_OPTS=0" in caplog.text
    assert json.loads((tmp_path / "to/1" / environment.FILE).read_text()) == {"TF_ENABLE_ONEDNN_OPTS": "0"}


def test_a_model_runs_in_a_process_with_its_variables_unless_this_one_has_them(real, tmp_path, monkeypatch):
    made, x = configured(real, tmp_path / "made"), {"x": np.ones((2, 3), np.float32)}
    ((name, value),) = environment.read(made).items()
    with runtimes.load(made) as runtime:
        (started,) = own_processes()
        assert started.environ()[name] == value
        assert runtime.run(x)["y"].tolist() == runtimes.load(Model(real)).run(x)["y"].tolist()
        with pytest.raises(ComponentError, match="input 'x': float64"):
            runtime.run({"x": np.ones((2, 3))})
        started.kill()
        with pytest.raises(ComponentError, match=f"with {name}={value}: the process was killed by SIGKILL"):
            runtime.run(x)
    assert not own_processes()
    monkeypatch.setenv(name, value)
    with runtimes.load(made):
        assert not own_processes()


def own_processes() -> list[psutil.Process]:
    """Those of models; libraries that ran before may have started others."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if elsewhere.__name__ in child.cmdline():
                found.append(child)
    return found


def test_what_is_judged_is_what_is_served(real, tmp_path):
    examples = tmp_path / "examples/Split-eval/data_tfrecord-00000-of-00001.gz"
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    write_examples(examples, {"x": x, "label": x[:, :2].argmax(1)})
    shutil.copytree(real, tmp_path / "broken")
    environment.write(tmp_path / "broken", {"PYTHONHOME": "/nowhere"})  # with which no Python comes up
    models = [tmp_path / "broken", configured(real, tmp_path / "made").path]
    content = evaluate(real, models, tmp_path / "examples", tmp_path / "evaluation")["evaluation"].read()
    parent, broken, made = content["models"]
    assert "PYTHONHOME=/nowhere: the process ended" in broken["error"]
    assert made["error"] is None and made["metrics"]["accuracy"]["value"] == parent["metrics"]["accuracy"]["value"] == 1
    assert not own_processes()


def test_a_model_that_cannot_be_judged_keeps_no_process(real, tmp_path, monkeypatch):
    made, load, held = configured(real, tmp_path / "made"), runtimes.load, []
    monkeypatch.setattr(
        runtimes, "load", lambda model: held.append(load(model)) or held[-1]
    )  # not left to be collected
    plan = SimpleNamespace(output=None, stored={}, models=((str(made.path), "made"),))
    assert "no feature 'x'" in Contestant(str(made.path), plan).failure
    assert held and not own_processes()


def test_models_end_with_the_step_that_failed_among_them(real, tmp_path):
    made = configured(real, tmp_path / "made")
    plan, pool = SimpleNamespace(output=None, stored=STORED, models=((str(made.path), "made"),)), Pool()
    with pytest.raises(RuntimeError), pool.borrow(plan) as (model,):
        assert not model.failure and own_processes()
        raise RuntimeError
    assert not own_processes()


def test_a_model_is_tried_in_a_process_with_its_variables(plain, tmp_path):
    environment.write(plain, {"PYTHONHOME": "/nowhere"})  # with which no Python comes up
    said = validate_serving(plain, tmp_path / "infra")["infra_blessing"].read()
    assert not said["blessed"] and "the process ended" in said["reason"]
