"""The server: experiments, pipelines, versions, runs and recurring runs, with the checks that KFP's backend makes."""

import email
import http.server
import itertools
import json
import re
import threading
import urllib.parse
from datetime import UTC, datetime
from typing import Any

import croniter
import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from tests.kfp_server.schema import RefusedError, check_answer, check_body, check_query, operation

TYPES = {"STRING": str, "NUMBER_INTEGER": (int, float), "NUMBER_DOUBLE": (int, float), "BOOLEAN": bool, "LIST": list}


class KfpServer:
    """Start with ``with KfpServer() as server``; ``server.url`` is its address.

    Attributes:
        token: What a request must bear; None lets everybody in.
        multi_user: Whether objects live in namespaces.
        script: The states that a run goes through, one at each question; each with its steps' states.
        down: How many of the next requests are answered 503.
        asked: Every ``METHOD path`` so far.
    """

    def __init__(self) -> None:
        self.token: str | None = None
        self.multi_user = False
        self.script: list[tuple[str, dict[str, str]]] = [("SUCCEEDED", {})]
        self.down = 0
        self.page_limit = 2
        self.asked: list[str] = []
        self.kinds: dict[str, dict[str, dict[str, Any]]] = {
            kind: {} for kind in ("experiments", "pipelines", "versions", "runs", "recurringruns")
        }
        self.uploads: dict[str, str] = {}
        self._number = itertools.count(1)
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> "KfpServer":
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._http.shutdown()
        self._http.server_close()

    def serve(self, method: str, target: str, headers: Any, content: bytes) -> Any:
        path, _, query_text = target.partition("?")
        self.asked.append(f"{method} {path}")
        if self.down:
            self.down -= 1
            raise RefusedError(503, "upstream connect error")
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            raise RefusedError(401, "Request header error: the token has expired")
        described, places = operation(method, path)
        query = dict(urllib.parse.parse_qsl(query_text, keep_blank_values=True))
        check_query(described, query)
        if "multipart/form-data" in described.get("consumes", []):
            body = _uploaded_file(headers, content)
        else:
            body = json.loads(content) if content else None
            check_body(described, body)
        name = re.sub(r"([A-Z])", r"_\1", described["operationId"].rpartition("_")[2]).lower()  # _list_runs
        answer = getattr(self, name)(body, {**query, **places})
        check_answer(described, answer)
        return answer

    def _get_healthz(self, body, given):
        return {"multi_user": self.multi_user}

    def _list_experiments(self, body, given):
        return self._page("experiments", "experiments", given)

    def _create_experiment(self, body, given):
        return self._add("experiments", "experiment_id", body)

    def _list_pipelines(self, body, given):
        return self._page("pipelines", "pipelines", given)

    def _create_pipeline(self, body, given):
        if any(found["name"] == body["name"] for found in self.kinds["pipelines"].values()):
            raise RefusedError(409, f"The name {body['name']} already exists. Please specify a new name")
        return self._add("pipelines", "pipeline_id", body)

    def _list_pipeline_versions(self, body, given):
        return self._page("versions", "pipeline_versions", given, pipeline_id=given["pipeline_id"])

    def _upload_pipeline_version(self, body, given):
        _read_spec(body)
        pipeline = given["pipelineid"]
        self._known("pipelines", pipeline)
        if any(
            (found["name"], found["pipeline_id"]) == (given["name"], pipeline)
            for found in self.kinds["versions"].values()
        ):
            raise RefusedError(409, f"The name {given['name']} already exists. Please specify a new name")
        facts = {"pipeline_id": pipeline, "name": given["name"], "display_name": given["name"]}
        version = self._add("versions", "pipeline_version_id", facts)
        self.uploads[version["pipeline_version_id"]] = body
        return version

    def _create_run(self, body, given):
        self._check_config(body)
        return self._add("runs", "run_id", {**body, "state": "PENDING"})

    def _get_run(self, body, given):
        run = self._known("runs", given["run_id"])
        asked = run.setdefault("_asked", itertools.count())
        state, steps = self.script[min(next(asked), len(self.script) - 1)]
        details = [
            {"task_id": name, "display_name": name, "state": word.partition(":")[0], **_error(word)}
            for name, word in steps.items()
        ]
        run.update(state=state, run_details={"task_details": details})
        return {key: value for key, value in run.items() if not key.startswith("_")}

    def _list_recurring_runs(self, body, given):
        return self._page("recurringruns", "recurringRuns", given)

    def _create_recurring_run(self, body, given):
        self._check_config(body)
        cron = body["trigger"]["cron_schedule"]["cron"]
        if len(cron.split()) != 6 or not croniter.croniter.is_valid(cron, second_at_beginning=True):
            raise RefusedError(400, f"Schedule cron is not supported: {cron}")
        if not 1 <= int(body.get("max_concurrency", 0)) <= 10:
            raise RefusedError(400, "The max concurrency of the recurring run is out of range. Support 1-10")
        status = "ENABLED" if body["mode"] == "ENABLE" else "DISABLED"
        return self._add("recurringruns", "recurring_run_id", {**body, "status": status})

    def _enable_recurring_run(self, body, given):
        self._known("recurringruns", given["recurring_run_id"])["status"] = "ENABLED"
        return {}

    def _disable_recurring_run(self, body, given):
        self._known("recurringruns", given["recurring_run_id"])["status"] = "DISABLED"
        return {}

    def _delete_recurring_run(self, body, given):
        self._known("recurringruns", given["recurring_run_id"])
        del self.kinds["recurringruns"][given["recurring_run_id"]]
        return {}

    def _add(self, kind, id_name, facts):
        key = f"{kind}-{next(self._number)}"
        self.kinds[kind][key] = {**facts, id_name: key, "created_at": datetime.now(UTC).isoformat()}
        return self.kinds[kind][key]

    def _known(self, kind, key):
        if key not in self.kinds[kind]:
            raise RefusedError(404, f"{kind} {key} not found")
        return self.kinds[kind][key]

    def _page(self, kind, field, given, **wanted):
        predicates = json.loads(given.get("filter") or "{}").get("predicates", [])
        if self.multi_user and kind != "versions" and not given.get("namespace"):
            raise RefusedError(400, "A namespace is required in multi-user mode")
        wanted |= {found["key"]: found["stringValue"] for found in predicates}
        found = [one for one in self.kinds[kind].values() if wanted.items() <= one.items()]
        start = int(given.get("page_token") or 0)
        end = start + min(int(given.get("page_size") or 10), self.page_limit)
        more = {"next_page_token": str(end)} if end < len(found) else {}
        return {field: found[start:end], "total_size": len(found), **more}

    def _check_config(self, body):
        """The pipeline version is there, and its inputs get values of their types, as the backend checks."""
        self._known("experiments", body["experiment_id"])
        reference = body["pipeline_version_reference"]
        version = self._known("versions", reference["pipeline_version_id"])
        assert version["pipeline_id"] == reference["pipeline_id"]
        spec = _read_spec(self.uploads[reference["pipeline_version_id"]])
        wanted = spec["root"].get("inputDefinitions", {}).get("parameters", {})
        given = body["runtime_config"].get("parameters", {})
        for name, value in given.items():
            if name not in wanted:
                raise RefusedError(400, f"unknown parameter {name}")
            if not isinstance(value, TYPES[wanted[name]["parameterType"]]):
                raise RefusedError(400, f"parameter {name} is not a {wanted[name]['parameterType']}")
        missing = [name for name in wanted if name not in given and not wanted[name].get("isOptional")]
        if missing:
            raise RefusedError(400, f"parameters {missing} are not optional, yet have neither default value nor value")


def _read_spec(text):
    documents = list(yaml.safe_load_all(text))
    json_format.ParseDict(documents[0], pipeline_spec_pb2.PipelineSpec())
    for document in documents[1:]:
        json_format.ParseDict(document, pipeline_spec_pb2.PlatformSpec())
    return documents[0]


def _error(word):
    message = word.partition(":")[2]
    return {"error": {"code": 2, "message": message}} if message else {}


def _uploaded_file(headers, content):
    message = email.message_from_bytes(b"Content-Type: " + headers["content-type"].encode() + b"\r\n\r\n" + content)
    return next(
        part.get_payload(decode=True).decode()
        for part in message.get_payload()
        if part.get_param("name", header="content-disposition") == "uploadfile"
    )


def _handler(server):
    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self):
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            try:
                status, answer = 200, server.serve(self.command, self.path, self.headers, content)
            except RefusedError as error:
                status, answer = error.status, {"code": 3, "message": str(error)}
            except (KeyError, AssertionError, json_format.ParseError) as error:
                status, answer = 400, {"code": 3, "message": repr(error)}
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_):
            pass

    return Handler
