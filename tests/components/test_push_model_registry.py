"""Test `push_model --register model-registry=…` with the registry's client.

The server is that of tests/model_registry.py and, with the variable MODEL_REGISTRY_URL, also a real one, whose database
should be empty. The client must be of the server's release (in PYTHONPATH, if it is another one than the locked one).
"""

import asyncio
import os
import socket

import pytest

from tests.components.pushes import version
from tests.model_registry import ModelRegistryServer
from tfopt.components.push_model.registrations.kind import parse_targets, register_with
from tfopt.errors import ComponentError

REAL = os.environ.get("MODEL_REGISTRY_URL")


@pytest.fixture(params=["stand-in", *(["real"] if REAL else [])])
def url(request):
    if request.param == "real":
        yield REAL
    else:
        with ModelRegistryServer() as server:
            yield server.url


def stored(url: str, name: str):
    """Return the registered model, its version 1 and the artifacts, with the client."""
    from model_registry.core import ModelRegistryAPIClient  # takes a third of a second

    client = ModelRegistryAPIClient.insecure_connection(url, 0)
    model = asyncio.run(client.get_registered_model_by_params(name))
    version = asyncio.run(client.get_model_version_by_params(model.id, "1"))
    return model, version, asyncio.run(client.get_model_version_artifacts(version.id))


def test_a_push_is_a_version_with_metrics_and_the_address_of_the_files(push, url):
    report = push(f"model-registry={url}", model_name="digits a", destination_uri="s3://bucket/digits/")
    model, version, (artifact,) = stored(url, "digits a")
    reference = f"version 1 of digits a (ID {version.id})"
    assert report["registrations"] == {f"model-registry={url}": reference}
    assert (model.name, version.name, version.author) == ("digits a", "1", "tfopt")
    assert version.description == report["blessing"]
    properties = version.custom_properties
    assert {name: properties[name] for name in push.metrics} == pytest.approx(push.metrics)
    assert properties["baseline/accuracy"] == pytest.approx(push.baseline_metrics["accuracy"])
    assert properties["tfopt.digest"] == report["digest"]
    assert artifact.uri == "s3://bucket/digits/1"
    assert (artifact.model_format_name, artifact.model_format_version) == ("tensorflow", "2")


def register(url: str, **fields) -> str:
    """Register a version in this process: only the test above starts another one."""
    (target,) = parse_targets([f"model-registry={url}"])
    return register_with(target, version(**fields))


def test_a_second_registration_adds_nothing(url):
    first = register(url, name="digits b", number=1)
    assert register(url, name="digits b", number=1) == first
    assert len(stored(url, "digits b")[2]) == 1


def test_another_model_as_the_same_version_is_refused(url):
    """Register; test_push_model_registrations.py has a push whose registration fails, and the version stays."""
    register(url, name="digits c", number=1, digest="a" * 64)
    with pytest.raises(ComponentError, match="the server has another model as digits c 1"):
        register(url, name="digits c", number=1, digest="b" * 64)
    assert stored(url, "digits c")[1].custom_properties["tfopt.digest"] == "a" * 64


def test_a_version_whose_artifact_was_not_registered_gets_it_in_the_rerun():
    with ModelRegistryServer() as server:
        server.refused = 1
        with pytest.raises(ComponentError, match="503"):
            register(server.url, number=1)
        assert register(server.url, number=1).startswith("version 1 of digits")
        assert len(stored(server.url, "digits")[2]) == 1


def test_the_token_of_the_pod_is_sent(tmp_path, monkeypatch):
    """Register in this process: the variable would start another process with TensorFlow."""
    with ModelRegistryServer() as server:
        server.token = "t0"
        with pytest.raises(ComponentError, match="401"):
            register(server.url)
        (tmp_path / "token").write_text("t0\n")
        monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(tmp_path / "token"))
        assert register(server.url).startswith("version 8 of digits")


def test_an_address_without_a_registry_and_https_without_a_token_are_refused(monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(ComponentError, match="model-registry that accepts the registration"):
        register(f"http://127.0.0.1:{port}")
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", "/nowhere/token")
    with pytest.raises(ComponentError, match="no file /nowhere/token"):
        register(f"https://127.0.0.1:{port}")


def test_a_server_with_another_api_is_reported_with_the_release_of_the_client(monkeypatch):
    with ModelRegistryServer() as server:
        monkeypatch.setattr(server, "respond", lambda *_: (404, {}))
        with pytest.raises(ComponentError, match=r"the API of the client model-registry 0\.\d+\.\d+ \(404\)"):
            register(server.url)
