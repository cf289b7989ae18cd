"""Test ``Steps(local=True)`` with KFP's own runner of local processes."""

import numpy as np
import pytest
from kfp import dsl, local

from tfopt.artifacts import Evaluation, Model
from tfopt.kfp import Steps
from tfopt.runtimes import load


@pytest.fixture
def runner(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "the root"))


@pytest.mark.nightly  # daily: a step that fails, and tests/kfp/test_container_entry.py
def test_a_pipeline_runs_without_docker(runner, digits_model, digits_examples, tmp_path):
    ours = Steps(local=True)

    @dsl.pipeline(name="own")
    def own(model: str, data: str) -> dsl.Metrics:
        trained = dsl.importer(artifact_uri=model, artifact_class=dsl.Model).output
        examples = dsl.importer(artifact_uri=data, artifact_class=dsl.Dataset).output
        lite = ours.export_tflite(model=trained, examples=examples, precision="float32").outputs["exported"]
        evaluated = ours.evaluate(baseline=trained, candidates=[lite, trained], examples=examples, label="label")
        return evaluated.outputs["evaluation"]

    task = own(model=str(digits_model), data=str(digits_examples))
    report = Evaluation(task.outputs["Output"].path).load()
    assert [model.metrics["accuracy"] for model in report.models] == [report.models[0].metrics["accuracy"]] * 3
    assert task.outputs["Output"].metadata["accuracy[tflite float32]"] == report.models[1].metrics["accuracy"].value
    (matrix,) = (tmp_path / "the root").rglob("evaluation_candidates_1")
    assert "confusionMatrix" in matrix.read_text()
    (exported,) = (path for path in (tmp_path / "the root").rglob("exported") if path.is_dir())
    images = np.zeros((2, 8, 8, 1), np.float32)
    with load(Model(exported)) as lite, load(Model(digits_model)) as trained:
        name = next(iter(trained.inputs))
        (one,), (two,) = lite.run({name: images}).values(), trained.run({name: images}).values()
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_a_step_that_fails_shows_its_error(runner, tmp_path, capfd):
    @dsl.pipeline(name="failing")
    def failing(model: str) -> None:
        Steps(local=True).inspect_model(model=dsl.importer(artifact_uri=model, artifact_class=dsl.Model).output)

    (tmp_path / "empty").mkdir()
    with pytest.raises(RuntimeError, match="inspect-model"):
        failing(model=str(tmp_path / "empty"))
    assert "how to fix: " in capfd.readouterr().out
