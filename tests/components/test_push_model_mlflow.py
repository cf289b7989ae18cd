"""Test `push_model --register mlflow=…` against MLflow's server, a real process, and its SQLite store."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.components.pushes import version
from tfopt.components.push_model.registrations.kind import parse_targets, register_with, update_with
from tfopt.errors import ComponentError


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture(scope="module")
def server(folder):
    """Start ``mlflow server`` and return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [Path(sys.executable).with_name("mlflow"), "server", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/runs.db"]
    words += ["--artifacts-destination", str(folder / "files")]
    with (folder / "log").open("wb") as log:
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # else many more processes
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, env=environment, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(f"{address}/health", process)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _wait(address: str, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"no MLflow server: exit status {process.poll()}")


def client_of(address: str):
    from mlflow import MlflowClient  # takes half a second, which the collection in other workers does not need

    return MlflowClient(address)


def runs_of(client, name: str) -> list:
    return client.search_runs([client.get_experiment_by_name(name).experiment_id])


def test_a_push_is_a_run_with_metrics_tags_and_files_and_a_registered_version(push, server, tmp_path):
    report = push(f"mlflow={server}", model_name="digits a")
    client = client_of(server)
    (run,) = runs_of(client, "digits a")
    assert report["registrations"] == {f"mlflow={server}": f"run {run.info.run_id} of the experiment digits a"}
    assert (run.info.status, run.info.run_name) == ("FINISHED", "digits a 1")
    expected = push.metrics | {f"baseline/{name}": value for name, value in push.baseline_metrics.items()}
    assert run.data.metrics == pytest.approx(expected)
    assert run.data.tags["tfopt.digest"] == report["digest"]
    assert run.data.tags["tfopt.destination"] == str(push.destination)
    assert {name: run.data.tags[f"tfopt.{name}"] for name in ("version", "format", "fallback")} == {
        "version": "1", "format": "tflite", "fallback": "false",
    }  # fmt: skip
    (version,) = client.search_model_versions("name = 'digits a'")
    assert (version.run_id, version.tags["tfopt.version"]) == (run.info.run_id, "1")
    files = Path(client.download_artifacts(run.info.run_id, "model", str(tmp_path)))
    pushed = push.destination / "1"
    names = {file.relative_to(pushed) for file in pushed.rglob("*") if file.is_file()}
    assert names == {file.relative_to(files) for file in files.rglob("*") if file.is_file()}
    assert all((files / name).read_bytes() == (pushed / name).read_bytes() for name in names)


def register(address: str, **fields) -> str:
    """Register a version in this process: only the first test starts another one, which imports MLflow again."""
    (target,) = parse_targets([f"mlflow={address}"])
    with patch.dict(os.environ):  # the client's settings are for a process of its own
        return register_with(target, version(**fields))


def test_a_second_registration_adds_nothing_an_unfinished_run_is_completed_and_a_version_is_added(push, server):
    client = client_of(server)
    fields = {"name": "digits b", "path": push()["path"], "destination": str(push.destination)}
    first = register(server, **fields)
    assert register(server, **fields) == first
    (run,) = runs_of(client, "digits b")
    (registered,) = client.search_model_versions("name = 'digits b'")
    client.delete_model_version("digits b", registered.version)  # as if a push had been killed before it
    client.update_run(run.info.run_id, "RUNNING")
    assert register(server, **fields) == first
    (run,) = runs_of(client, "digits b")
    (registered,) = client.search_model_versions("name = 'digits b'")
    assert (run.info.status, registered.run_id) == ("FINISHED", run.info.run_id)
    register(server, **fields | {"number": 9, "digest": "1" * 64})
    assert sorted(run.data.tags["tfopt.version"] for run in runs_of(client, "digits b")) == ["8", "9"]
    assert len(client.search_model_versions("name = 'digits b'")) == 2


def test_the_files_of_a_version_in_an_object_store_are_recorded(push, server, bucket):
    pushed = push(destination=f"{bucket}/digits d")
    register(server, name="digits d", path=pushed["path"], destination=f"{bucket}/digits d")
    client = client_of(server)
    (run,) = runs_of(client, "digits d")
    assert run.data.tags["tfopt.destination"] == f"{bucket}/digits d"
    assert "model/model.tflite" in {file.path for file in client.list_artifacts(run.info.run_id, "model")}


def test_a_file_of_sqlite_is_a_store_too(push, server, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the store has its files in the working folder
    shutil.copy(folder / "runs.db", tmp_path)  # that of the server: MLflow needs 2 s to create its tables
    address = f"sqlite:///{tmp_path}/runs.db"
    register(address, name="digits e", path=push()["path"], metrics=push.metrics)
    client = client_of(address)
    (run,) = runs_of(client, "digits e")
    assert run.data.metrics["accuracy"] == pytest.approx(push.metrics["accuracy"])
    assert [file.path for file in client.list_artifacts(run.info.run_id, "model")]


@pytest.mark.nightly  # daily: test_push_model_registrations.py
def test_a_server_that_does_not_respond_is_an_error(push):
    """Register; test_push_model_registrations.py has a push whose registration fails."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(ComponentError) as caught:
        register(address, path=push()["path"])
    assert caught.value.expected == "mlflow that accepts the registration"


def test_a_withdrawn_version_is_tagged(push, server):
    client, (target,) = client_of(server), parse_targets([f"mlflow={server}"])
    fields = {"name": "digits w", "path": push()["path"], "destination": str(push.destination)}
    with patch.dict(os.environ):
        assert update_with(target, version(**fields), None, "wrong") == "nothing: the version is not registered"
    register(server, **fields)
    for withdrawn in ("wrong labels", None, None):
        with patch.dict(os.environ):
            update_with(target, version(**fields), None, withdrawn)
        (run,) = runs_of(client, "digits w")
        (registered,) = client.search_model_versions("name = 'digits w'")
        for tags in (run.data.tags, registered.tags):
            assert tags.get("tfopt.withdrawn") == withdrawn
            assert tags["tfopt.version"] == "8"
