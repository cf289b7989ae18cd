"""Connection to a Kubeflow Pipelines server with the kfp SDK's client, with errors in three parts."""

import contextlib
import http.client
import json
import os
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kfp.client
import kfp_server_api
import urllib3
from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

from tfopt.error_messages import first_line
from tfopt.errors import ComponentError

IN_CLUSTER = "http://ml-pipeline.{namespace}.svc.cluster.local:8888"
PROJECTED_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"  # the default path of the KFP SDK
ANSWER_S = 20.0  # of a request; creating a run takes the server a second
POD_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class Server:
    """A Kubeflow Pipelines server, with the profile's namespace if it is a multi-user server."""

    def __init__(self, endpoint: str, token_file: Path | None = None, namespace: str | None = None) -> None:
        """Connect.

        Args:
            endpoint: An address; or ``in-cluster``, the service in the namespace ``kubeflow``.
            token_file: A file with a bearer token, read again for each request, because tokens are short-lived. The
                default is the variable KFP_TOKEN, or in the cluster the projected token of the pod.
            namespace: The namespace of the profile on a multi-user server; in the cluster by default the pod's own.

        Raises:
            ComponentError: If the address does not respond, is not a KFP server, or refuses access.
        """
        if in_cluster := endpoint == "in-cluster":
            endpoint = IN_CLUSTER.format(namespace="kubeflow")
            token_file = token_file or (Path(PROJECTED_TOKEN) if Path(PROJECTED_TOKEN).exists() else None)
        if not endpoint.startswith(("http://", "https://")):
            expected = "http://… or https://…, or in-cluster"
            raise ComponentError(f"--endpoint {endpoint}", expected, f"write --endpoint https://{endpoint}")
        if token_file and not token_file.is_file():
            raise ComponentError(f"--token-file {token_file}: no such file", "a file with a token", "check the path")
        self.endpoint, self.namespace = endpoint.rstrip("/"), namespace
        self._token: Callable[[], str | None] = (
            (lambda: token_file.read_text().strip()) if token_file else (lambda: os.environ.get("KFP_TOKEN"))
        )
        multi_user = self._health().get("multi_user")
        if multi_user and in_cluster and not namespace and Path(POD_NAMESPACE).is_file():
            self.namespace = namespace = Path(POD_NAMESPACE).read_text().strip()
        if multi_user and not namespace:
            received = f"{endpoint} has several users, and no namespace was given"
            raise ComponentError(received, "your profile's namespace", "pass --namespace NAME")
        credentials = ServiceAccountTokenVolumeCredentials(str(token_file)) if token_file else None
        with self.translated_errors("connect"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This client only works with", FutureWarning)  # of servers before 2.0
            access = {"credentials": credentials, "existing_token": None if credentials else self._token()}
            self.client = kfp.client.Client(self.endpoint, namespace=namespace or "kubeflow", **access)
        for api in vars(self.client).values():  # the SDK sets no limit
            if hasattr(api, "api_client"):
                api.api_client.rest_client.pool_manager.connection_pool_kw |= {"timeout": ANSWER_S, "retries": 1}

    @contextlib.contextmanager
    def translated_errors(self, action: str) -> Iterator[None]:
        """Turn errors of the client's calls into a ComponentError, and send its output to the standard error."""
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield
        except kfp_server_api.ApiException as error:
            raise self._refusal(error.status, f"{action}: {_message(error)}") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from error

    def list_all(self, list_page: Callable[..., Any], field: str, name: str, **settings: Any) -> list[Any]:
        """List every object of a name (of any name if empty), from all pages of a ``list_…`` call of the client."""
        objects: list[Any] = []
        query = {"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]}
        if name:
            settings["filter"] = json.dumps(query)
        page = ""
        while True:
            with self.translated_errors(f"list {field}"):
                response = list_page(page_token=page, page_size=100, **settings)
            objects += getattr(response, field) or []
            page = response.next_page_token or ""
            if not page:
                return objects

    def _health(self) -> dict[str, object]:
        """Request the server's health once, with a short timeout; the SDK's client would retry for half a minute."""
        request = urllib.request.Request(f"{self.endpoint}/apis/v2beta1/healthz")
        if token := self._token():
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S / 2) as response:
                body = response.read()
        except urllib.error.HTTPError as error:
            raise self._refusal(error.code, f"connect: {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        try:
            health = json.loads(body)
        except ValueError:
            health = None
        if not isinstance(health, dict):
            fix = "a page instead of JSON is often a login page: pass --token-file, and check the address"
            raise ComponentError(f"{self.endpoint} responds with {body[:40]!r}", "a Kubeflow Pipelines API", fix)
        return health

    def _refusal(self, status: int | None, action: str) -> ComponentError:
        if status in (401, 403):
            return ComponentError(
                f"{self.endpoint} refused ({status}) to {action}",
                "a valid token whose owner may do that",
                "get a new token (kubectl create token SERVICE_ACCOUNT --audience pipelines.kubeflow.org) and pass it "
                "with --token-file, or give its account the role in deploy/kubernetes",
            )
        if status == 404:
            fix = "check the address: it ends before /apis"
            return ComponentError(f"{self.endpoint} has nothing (404) to {action}", "a Kubeflow Pipelines v2 API", fix)
        received = f"{self.endpoint} responded {status} to {action}"
        return ComponentError(received, "a server that accepts it", "act on its message")

    def _unreachable(self, error: BaseException) -> ComponentError:
        return ComponentError(
            f"{self.endpoint}: {first_line(error)}",
            "a Kubeflow Pipelines server at this address",
            "check the address and that the server is up; kubectl port-forward -n kubeflow svc/ml-pipeline 8888:8888 "
            "makes it available at http://localhost:8888",
        )


def _message(error: kfp_server_api.ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)
