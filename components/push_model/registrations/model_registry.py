"""Register a version with Kubeflow's Model Registry: a registered model, its version, and the artifact."""

import asyncio
import os
import re
from collections.abc import Coroutine
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tfopt.components.push_model.registrations.kind import Kind, PushedVersion
from tfopt.components.push_model.registrations.kserve import RUNTIMES, TRITON
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject

# Where Kubeflow's pods have their tokens; the registry's own client reads the same.
TOKEN_VARIABLE = "KF_PIPELINES_SA_TOKEN_PATH"
TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"
OWNER = "tfopt"
WITHDRAWN = "tfopt.withdrawn"  # a property
LIMIT_S = 60


def check_address(address: str) -> None:
    """Raise ComponentError if an address is not that of a web server."""
    if not re.match(r"https?://[^/]", address):
        received = f"'model-registry={address}'"
        raise ComponentError(received, "the server's web address", "pass model-registry=http://HOST:PORT")


def register(address: str, version: PushedVersion) -> str:
    """Register what an earlier attempt did not, and return the name and ID of the version.

    Raises:
        ComponentError: If the server has another model as this version, or another API.
    """
    return _call(_register(_client(address), version))


def update(address: str, version: PushedVersion, served: PushedVersion | None, withdrawn: str | None) -> str:
    """Archive a withdrawn version, with the reason as a property; a restored one is live again."""
    return _call(_update(_client(address), version, withdrawn))


def _call(request: Coroutine[Any, Any, str]) -> str:
    from mr_openapi.exceptions import NotFoundException

    try:
        return asyncio.run(asyncio.wait_for(request, LIMIT_S))
    except NotFoundException as error:
        client = metadata.version("model-registry")
        received = f"the server does not have the API of the client model-registry {client} (404)"
        fix = "check the address, or install the client of the server's release: pip install model-registry==X.Y.Z"
        raise ComponentError(received, "a Model Registry at this address, of the client's release", fix) from error


def _client(address: str) -> Any:
    from model_registry.core import ModelRegistryAPIClient

    url = urlsplit(address)
    port = url.port or (443 if url.scheme == "https" else 8080)
    file = Path(os.environ.get(TOKEN_VARIABLE, TOKEN_FILE))
    token = file.read_text().strip() if file.is_file() else None
    if url.scheme == "http":
        return ModelRegistryAPIClient.insecure_connection(address, port, token)
    if token is None:
        received = f"register=model-registry={address}: no file {file}"
        expected = "a token, for a server with https"
        raise ComponentError(received, expected, f"set {TOKEN_VARIABLE} to the file that has it")
    return ModelRegistryAPIClient.secure_connection(address, port, user_token=token)


async def _register(client: Any, version: PushedVersion) -> str:
    from model_registry.types import ModelArtifact, ModelVersion, RegisteredModel

    number = str(version.number)
    model = await client.get_registered_model_by_params(version.name)
    model = model or await client.upsert_registered_model(RegisteredModel(name=version.name, owner=OWNER))
    stored = await client.get_model_version_by_params(model.id, number)
    if stored and stored.custom_properties.get("tfopt.digest") != version.digest:
        raise ComponentError(
            f"the server has another model as {version.name} {number}",
            "a version that is not registered, or is this model",
            "register under another name (--model-name)",
        )
    if not stored:
        properties: JsonObject = {**version.tags, **version.metrics}
        properties |= {f"baseline/{metric}": value for metric, value in version.baseline_metrics.items()}
        described = ModelVersion(name=number, author=OWNER, description=version.reason, custom_properties=properties)
        stored = await client.upsert_model_version(described, model.id)
    if not await client.get_model_version_artifacts(stored.id):
        other = TRITON if version.layout == "triton" else (None, version.format, "1", None)
        _, format, format_version, _ = RUNTIMES.get((version.layout, version.format), other)
        artifact = ModelArtifact(
            name=version.name, uri=version.address, model_format_name=format, model_format_version=format_version
        )
        await client.upsert_model_version_artifact(artifact, stored.id)
    return f"version {number} of {version.name} (ID {stored.id})"


async def _update(client: Any, version: PushedVersion, withdrawn: str | None) -> str:
    from model_registry.types import ModelVersionState

    model = await client.get_registered_model_by_params(version.name)
    stored = await client.get_model_version_by_params(model.id, str(version.number)) if model else None
    if stored is None:
        return "nothing: the version is not registered"
    stored.state = ModelVersionState.ARCHIVED if withdrawn else ModelVersionState.LIVE
    stored.custom_properties = {**stored.custom_properties, WITHDRAWN: withdrawn or ""}
    await client.upsert_model_version(stored)
    return f"version {version.number} of {version.name} is {'archived' if withdrawn else 'live'}"


KIND = Kind(register, update=update, package="model_registry", check_address=check_address)
