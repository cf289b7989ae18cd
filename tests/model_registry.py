"""A server with the paths and rules of Kubeflow's Model Registry, for the client of PyPI.

Requests are parsed with the client's generated models, and responses are written by them: both follow the published
OpenAPI description. `tests/components/test_push_model_registry.py` runs its tests with a real server, too, if there is
one.
"""

import http.server
import itertools
import json
import re
import threading
import urllib.parse
from typing import Any

from mr_openapi import models

PATH = re.compile(r"/api/model_registry/v1(?:alpha3)?/(.+)")
CREATED = {
    "registered_models": (models.RegisteredModelCreate, models.RegisteredModel),
    "model_versions": (models.ModelVersionCreate, models.ModelVersion),
}


class ModelRegistryServer:
    """Start with ``with ModelRegistryServer() as server``; ``server.url`` is its address.

    Attributes:
        refused: The number of next requests that create an artifact and get the response 503.
        token: The bearer token that requests need; None for none.
    """

    def __init__(self) -> None:
        self.refused, self.token = 0, None
        self._number = itertools.count(1)
        self._stored: dict[str, list[dict[str, Any]]] = {"registered_models": [], "model_versions": [], "artifacts": []}
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> "ModelRegistryServer":
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._http.shutdown()
        self._http.server_close()

    def respond(self, method: str, target: str, headers: Any, body: Any) -> tuple[int, Any]:
        """Return status and content of a response."""
        url = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(url.query))
        match = PATH.fullmatch(url.path)
        path = match[1] if match else ""
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            return 401, {"code": "401", "message": "no such token"}
        if method == "GET" and path in ("registered_model", "model_version"):
            rows = [row for row in self._stored[f"{path}s"] if row["name"] == query["name"]]
            parent = query.get("parentResourceId")
            rows = [row for row in rows if parent is None or row["registeredModelId"] == parent]
            return (200, rows[0]) if rows else (404, {"code": "404", "message": "no such resource"})
        if method == "PATCH" and (changed := re.fullmatch(r"model_versions/(\d+)", path)):
            changes = {
                key: value for key, value in models.ModelVersionUpdate.from_dict(body).to_dict().items() if value
            }
            (row,) = (row for row in self._stored["model_versions"] if row["id"] == changed[1])
            row.update(changes)
            return 200, row
        if method == "POST" and path in CREATED:
            return self._create(path, *CREATED[path], body)
        artifacts = re.fullmatch(r"model_versions/(\d+)/artifacts", path)
        if artifacts and method == "GET":
            rows = [row for row in self._stored["artifacts"] if row["version"] == artifacts[1]]
            items = [row["content"] for row in rows]
            return 200, {"items": items, "nextPageToken": "", "pageSize": 0, "size": len(items)}
        if artifacts and method == "POST":
            if self.refused:
                self.refused -= 1
                return 503, {"code": "503", "message": "overloaded"}
            content = models.Artifact.from_dict(body).to_dict() | {"id": str(next(self._number))}
            self._stored["artifacts"].append({"version": artifacts[1], "content": content})
            return 201, content
        return 404, {"code": "404", "message": f"no such path: {path}"}

    def _create(self, kind: str, request: Any, response: Any, body: Any) -> tuple[int, Any]:
        parsed = request.from_dict(body).to_dict()
        parents = ("name", "registeredModelId")
        if any(all(row.get(key) == parsed.get(key) for key in parents) for row in self._stored[kind]):
            return 409, {"code": "409", "message": "already exists"}
        content = response.from_dict(parsed | {"id": str(next(self._number))}).to_dict()
        self._stored[kind].append(content)
        return 201, content


def _handler(server: ModelRegistryServer) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond(None)

        def do_POST(self) -> None:
            self._respond(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        do_PATCH = do_POST  # noqa: N815  (the name is http.server's)

        def _respond(self, body: Any) -> None:
            status, content = server.respond(self.command, self.path, self.headers, body)
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Write no log."""

    return Handler
