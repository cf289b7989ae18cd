"""Test ``Steps(local=True)`` with KFP's own runner of local processes."""

import numpy as np
import pytest
from kfp import dsl, local

from tfopt.artifacts import Evaluation, Model
from tfopt.kfp import Steps
from tfopt.runtimes import load


@dsl.component(base_image="python")
def copy_model(source: str, model: dsl.Output[dsl.Model]) -> None:
    """A native component before ours."""
    import shutil

    shutil.copytree(source, model.path)


@dsl.component(base_image="python")
def copy_examples(source: str, examples: dsl.Output[dsl.Dataset]) -> None:
    """Another one."""
    import shutil

    shutil.copytree(source, examples.path)


@pytest.fixture
def runner(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "the root"))


def test_a_pipeline_runs_without_docker(runner, digits_model, digits_examples, tmp_path):
    ours = Steps(local=True)

    @dsl.pipeline(name="own")
    def own(model: str, data: str) -> dsl.Metrics:
        trained = copy_model(source=model).outputs["model"]
        examples = copy_examples(source=data).outputs["examples"]
        lite = ours.export_tflite(model=trained, examples=examples, precision="float32").outputs["exported"]
        evaluated = ours.evaluate(baseline=trained, candidates=[lite, trained], examples=examples, label="label")
        return evaluated.outputs["evaluation"]

    task = own(model=str(digits_model), data=str(digits_examples))
    report = Evaluation(task.outputs["Output"].path).load()
    assert [model.metrics["accuracy"] for model in report.models] == [report.models[0].metrics["accuracy"]] * 3
    assert task.outputs["Output"].metadata["accuracy[tflite float32]"] == report.models[1].metrics["accuracy"].value
    (page,) = (tmp_path / "the root").rglob("evaluation_page")
    assert "<html" in page.read_text()[:1000]
    (exported,) = (path for path in (tmp_path / "the root").rglob("exported") if path.is_dir())
    images = np.zeros((2, 8, 8, 1), np.float32)
    with load(Model(exported)) as lite, load(Model(digits_model)) as trained:
        name = next(iter(trained.inputs))
        (one,), (two,) = lite.run({name: images}).values(), trained.run({name: images}).values()
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_a_step_that_fails_shows_its_error(runner, tmp_path, capfd):
    @dsl.pipeline(name="failing")
    def failing(model: str) -> None:
        Steps(local=True).inspect_model(model=copy_model(source=model).outputs["model"])

    (tmp_path / "empty").mkdir()
    with pytest.raises(RuntimeError, match="inspect-model"):
        failing(model=str(tmp_path / "empty"))
    assert "how to fix: " in capfd.readouterr().out
