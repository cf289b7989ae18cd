"""A Kubeflow Pipelines server, through the kfp SDK's client: how it is reached, and what its refusals mean."""

import contextlib
import http.client
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kfp.client
import kfp_server_api
import urllib3
from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

from tfopt.errors import ComponentError, first_line

IN_CLUSTER = "http://ml-pipeline.{namespace}.svc.cluster.local:8888"
PROJECTED_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"  # where the KFP SDK looks for it
POD_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class Server:
    """One server, and the namespace our objects live in.

    Attributes:
        client: The kfp SDK's client.
        namespace: The profile's namespace on a multi-user server, else None.
        endpoint: Its address.
    """

    def __init__(self, endpoint: str, token_file: Path | None = None, namespace: str | None = None) -> None:
        """Connect.

        Args:
            endpoint: An address; or ``in-cluster``, the service of the namespace ``kubeflow``.
            token_file: Holds a bearer token, read again for each request, since tokens are short-lived. Without it the
                variable KFP_TOKEN is used; in the cluster the projected token of the pod.
            namespace: Of a multi-user server's profile; in the cluster the pod's own when None.

        Raises:
            ComponentError: When nothing, or something else, answers there, or it does not let us in.
        """
        if inside := endpoint == "in-cluster":
            endpoint = IN_CLUSTER.format(namespace="kubeflow")
            token_file = token_file or (Path(PROJECTED_TOKEN) if Path(PROJECTED_TOKEN).exists() else None)
        if not endpoint.startswith(("http://", "https://")):
            raise ComponentError(
                f"--endpoint {endpoint}", "http://… or https://…, or in-cluster", f"write --endpoint https://{endpoint}"
            )
        if token_file and not token_file.is_file():
            raise ComponentError(f"--token-file {token_file}: no such file", "a file with a token", "check the path")
        self.endpoint, self.namespace = endpoint.rstrip("/"), namespace
        self._token: Callable[[], str | None] = (
            (lambda: token_file.read_text().strip()) if token_file else (lambda: os.environ.get("KFP_TOKEN"))
        )
        multi_user = self._health().get("multi_user")
        if multi_user and inside and not namespace and Path(POD_NAMESPACE).is_file():
            self.namespace = namespace = Path(POD_NAMESPACE).read_text().strip()
        if multi_user and not namespace:
            raise ComponentError(
                f"{endpoint} serves several users, and no namespace was given",
                "your profile's namespace",
                "pass --namespace NAME",
            )
        credentials = ServiceAccountTokenVolumeCredentials(str(token_file)) if token_file else None
        with self.asked("connect"):
            self.client = kfp.client.Client(
                self.endpoint,
                namespace=namespace or "kubeflow",
                credentials=credentials,
                existing_token=None if credentials else self._token(),
            )

    @contextlib.contextmanager
    def asked(self, what: str) -> Iterator[None]:
        """Around calls of the client: it prints links, which belong beside our output; its errors become ours."""
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield
        except kfp_server_api.ApiException as error:
            raise self._refusal(error.status, f"{what}: {_message(error)}") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from error

    def all(self, list_page: Callable[..., Any], field: str, name: str, **given: Any) -> list[Any]:
        """Every object of a name, from all pages of one of the client's ``list_…`` calls."""
        found: list[Any] = []
        query = {"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]}
        wanted = {"filter": json.dumps(query)} if name else {}
        page = ""
        while True:
            with self.asked(f"list {field}"):
                answer = list_page(page_token=page, page_size=100, **wanted, **given)
            found += getattr(answer, field) or []
            page = answer.next_page_token or ""
            if not page:
                return found

    def _health(self) -> dict[str, Any]:
        """Ask once, with a short patience: the SDK's own client would wait half a minute before it complains."""
        request = urllib.request.Request(f"{self.endpoint}/apis/v2beta1/healthz")
        if token := self._token():
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            raise self._refusal(error.code, f"connect: {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        try:
            health = json.loads(body)
        except ValueError:
            health = None
        if not isinstance(health, dict):
            raise ComponentError(
                f"{self.endpoint} answers with {body[:40]!r}",
                "a Kubeflow Pipelines API",
                "a page instead of JSON is often a login page: pass --token-file, and check the address",
            )
        return health

    def _refusal(self, status: int | None, what: str) -> ComponentError:
        if status in (401, 403):
            return ComponentError(
                f"{self.endpoint} refused ({status}) to {what}",
                "a valid token whose owner may do that",
                "get a new token (kubectl create token SERVICE_ACCOUNT --audience pipelines.kubeflow.org) and pass it "
                "with --token-file, or give its account the role in deploy/kubernetes",
            )
        if status == 404:
            fix = "check the address: it ends before /apis"
            return ComponentError(f"{self.endpoint} has nothing (404) to {what}", "a Kubeflow Pipelines v2 API", fix)
        return ComponentError(
            f"{self.endpoint} answered {status} to {what}", "a server that accepts it", "act on its message"
        )

    def _unreachable(self, error: BaseException) -> ComponentError:
        return ComponentError(
            f"{self.endpoint}: {first_line(error)}",
            "a Kubeflow Pipelines server there",
            "check the address and that it is up; kubectl port-forward -n kubeflow svc/ml-pipeline 8888:8888 brings it "
            "to http://localhost:8888",
        )


def _message(error: kfp_server_api.ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)
