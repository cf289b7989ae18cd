"""Test the pipeline `tune` on real digits over several runs: search, reuse of the recipe, another search."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.components.train_modules import DIGITS, write
from tfopt.artifacts import KerasModel
from tfopt.dag.tracing import load
from tfopt.model_store.warm_start import load_model, load_recipe
from tfopt.tfx import runner


def test_the_recipe_is_read_from_the_destination_of_the_push():
    dag = load("tune")
    tuned, pushed = dag.steps["tune_recipe"], dag.steps["push_model"]
    assert tuned.parameters["destination"] is pushed.parameters["destination"]
    assert (pushed.inputs["recipe"].step, pushed.inputs["recipe"].output) == ("tune_recipe", "recipe")
    assert [wire.step for wire in dag.steps["select_model"].inputs["candidates"]] == ["tune_recipe"]
    assert pushed.inputs["trained"].step == "train"


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_recipe_is_reused_until_it_misses_a_goal(tmp_path):
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    np.savetxt(tmp_path / "rows.csv", np.c_[images, labels], "%d", ",")
    np.savetxt(tmp_path / "more.csv", np.c_[images[:1500], labels[:1500]], "%d", ",")
    served, module = tmp_path / "served", write(tmp_path / "model.py", DIGITS)

    def run(name: str, data: str, **more: object) -> tuple[dict, dict, KerasModel]:
        values = {"data": tmp_path / data, "module": module, "pack": "image=8x8x1", "epochs": 4, "seconds": 0.4}
        values |= {"goals": ["quality max_degradation 5%"]}  # 164 records cannot prove 1 %
        values |= {"formats": ["tflite"], "trials": 3, "destination": str(served), **more}
        outcomes = runner.run(load("tune"), values, tmp_path / "root", engine=name)
        outputs = {step: outcome.outputs for step, outcome in outcomes.items()}
        pushed = json.loads(Path(outputs["push_model"]["pushed"].path, "pushed.json").read_text())
        return outputs["tune_recipe"]["recipe"].read(), pushed, KerasModel.open(outputs["train"]["trained"].path)

    first, pushed, trained = run("beam", "rows.csv")
    assert (len(first["trials"]), first["reused"], first["earlier"]) == (3, False, [])
    assert first["winner"] and pushed["digest"] == first["decision"]["selected_digest"]
    assert load_model(served).digest == trained.digest
    assert load_recipe(served).read() == first | {"served": True}

    second, pushed, again = run("local", "more.csv")
    assert again.digest != trained.digest
    assert second["reused"] and [row["name"] for row in second["trials"]] == [first["winner"]["name"]]
    assert second["winner"]["choices"] == first["winner"]["choices"]
    assert pushed["version"] == 2
    measured = {row["name"] for row in first["trials"] if row["beside_parent"]}
    assert {row["name"] for row in second["earlier"]} == measured - {second["winner"]["name"]}
    assert not any(row["same_parent"] or row["same_examples"] for row in second["earlier"])

    third, pushed, _ = run("local", "more.csv", goals=["latency min_improvement 99.99%"])
    assert (third["reused"], third["winner"]) == (False, None)
    assert third["trials"][0]["choices"] == second["winner"]["choices"]
    assert len(third["trials"]) == 3
    assert pushed["model"] == "trained"
