"""A server with experiments, pipelines, versions, runs and recurring runs, and the checks of KFP's backend."""

import email
import http.server
import itertools
import json
import re
import threading
import urllib.parse
from datetime import UTC, datetime, timedelta
from typing import Any

import croniter
import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from tests.kfp_server.schema import RefusedError, check_body, check_query, check_response, operation

TYPES = {"STRING": str, "NUMBER_INTEGER": (int, float), "NUMBER_DOUBLE": (int, float), "BOOLEAN": bool, "LIST": list}


class KfpServer:
    """Start with ``with KfpServer() as server``; ``server.url`` is its address.

    Attributes:
        token: The bearer token that requests need; None for none.
        multi_user: True if objects have namespaces.
        script: The states of a run, one for each request of the run, with the states of its steps.
        seconds: How long steps took, by KFP's name of their task, in runs whose state is final.
        down: The number of next requests that get the response 503.
        requests: Each ``METHOD path`` so far.
    """

    def __init__(self) -> None:
        self.token: str | None = None
        self.multi_user = False
        self.script: list[tuple[str, dict[str, str]]] = [("SUCCEEDED", {})]
        self.seconds: dict[str, float] = {}
        self.down = 0
        self.page_limit = 2
        self.requests: list[str] = []
        self.kinds: dict[str, dict[str, dict[str, Any]]] = {
            kind: {} for kind in ("experiments", "pipelines", "versions", "runs", "recurringruns")
        }
        self.uploads: dict[str, str] = {}
        self._number = itertools.count(1)
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> "KfpServer":
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._http.shutdown()
        self._http.server_close()

    def serve(self, method: str, target: str, headers: Any, content: bytes) -> Any:
        path, _, query_text = target.partition("?")
        self.requests.append(f"{method} {path}")
        if self.down:
            self.down -= 1
            raise RefusedError(503, "upstream connect error")
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            raise RefusedError(401, "Request header error: the token has expired")
        described, path_values = operation(method, path)
        query = dict(urllib.parse.parse_qsl(query_text, keep_blank_values=True))
        check_query(described, query)
        if "multipart/form-data" in described.get("consumes", []):
            body = _uploaded_file(headers, content)
        else:
            body = json.loads(content) if content else None
            check_body(described, body)
        name = re.sub(r"([A-Z])", r"_\1", described["operationId"].rpartition("_")[2]).lower()  # _list_runs
        response = getattr(self, name)(body, {**query, **path_values})
        check_response(described, response)
        return response

    def _get_healthz(self, body, arguments):
        return {"multi_user": self.multi_user}

    def _list_experiments(self, body, arguments):
        return self._page("experiments", "experiments", arguments)

    def _create_experiment(self, body, arguments):
        return self._add("experiments", "experiment_id", body)

    def _list_pipelines(self, body, arguments):
        return self._page("pipelines", "pipelines", arguments)

    def _create_pipeline(self, body, arguments):
        if any(pipeline["name"] == body["name"] for pipeline in self.kinds["pipelines"].values()):
            raise RefusedError(409, f"The name {body['name']} already exists. Please specify a new name")
        return self._add("pipelines", "pipeline_id", body)

    def _upload_pipeline(self, body, arguments):
        pipeline = self._create_pipeline({"name": arguments["name"], "display_name": arguments["name"]}, {})
        self._upload_pipeline_version(body, {"pipelineid": pipeline["pipeline_id"], "name": arguments["name"]})
        return pipeline

    def _list_pipeline_versions(self, body, arguments):
        return self._page("versions", "pipeline_versions", arguments, pipeline_id=arguments["pipeline_id"])

    def _upload_pipeline_version(self, body, arguments):
        _read_spec(body)
        pipeline = arguments["pipelineid"]
        self._stored("pipelines", pipeline)
        if any(
            (version["name"], version["pipeline_id"]) == (arguments["name"], pipeline)
            for version in self.kinds["versions"].values()
        ):
            raise RefusedError(409, f"The name {arguments['name']} already exists. Please specify a new name")
        facts = {"pipeline_id": pipeline, "name": arguments["name"], "display_name": arguments["name"]}
        version = self._add("versions", "pipeline_version_id", facts)
        self.uploads[version["pipeline_version_id"]] = body
        return version

    def _create_run(self, body, arguments):
        self._check_config(body)
        return self._add("runs", "run_id", {**body, "state": "PENDING"})

    def _get_run(self, body, arguments):
        run = self._stored("runs", arguments["run_id"])
        position = run.setdefault("_position", itertools.count())
        state, steps = self.script[min(next(position), len(self.script) - 1)]
        details = [
            {
                "task_id": name,
                "display_name": name,
                "state": word.partition(":")[0],
                **self._times(name),
                **_error(word),
            }
            for name, word in steps.items()
        ]
        run.update(state=state, run_details={"task_details": details})
        return {key: value for key, value in run.items() if not key.startswith("_")}

    def _times(self, name):
        if name not in self.seconds:
            return {}
        start = datetime(2026, 11, 28, tzinfo=UTC)
        end = start + timedelta(seconds=self.seconds[name])
        return {"start_time": start.isoformat(), "end_time": end.isoformat()}

    def _list_runs(self, body, arguments):
        newest = dict(reversed(self.kinds["runs"].items()))
        runs = [run for run in newest.values() if run["experiment_id"] == arguments.get("experiment_id")]
        return {"runs": [{key: value for key, value in run.items() if not key.startswith("_")} for run in runs]}

    def _list_recurring_runs(self, body, arguments):
        return self._page("recurringruns", "recurringRuns", arguments)

    def _create_recurring_run(self, body, arguments):
        self._check_config(body)
        cron = body["trigger"]["cron_schedule"]["cron"]
        if len(cron.split()) != 6 or not croniter.croniter.is_valid(cron, second_at_beginning=True):
            raise RefusedError(400, f"Schedule cron is not supported: {cron}")
        if not 1 <= int(body.get("max_concurrency", 0)) <= 10:
            raise RefusedError(400, "The max concurrency of the recurring run is out of range. Support 1-10")
        status = "ENABLED" if body["mode"] == "ENABLE" else "DISABLED"
        return self._add("recurringruns", "recurring_run_id", {**body, "status": status})

    def _enable_recurring_run(self, body, arguments):
        self._stored("recurringruns", arguments["recurring_run_id"])["status"] = "ENABLED"
        return {}

    def _disable_recurring_run(self, body, arguments):
        self._stored("recurringruns", arguments["recurring_run_id"])["status"] = "DISABLED"
        return {}

    def _delete_recurring_run(self, body, arguments):
        self._stored("recurringruns", arguments["recurring_run_id"])
        del self.kinds["recurringruns"][arguments["recurring_run_id"]]
        return {}

    def _add(self, kind, id_name, facts):
        key = f"{kind}-{next(self._number)}"
        self.kinds[kind][key] = {**facts, id_name: key, "created_at": datetime.now(UTC).isoformat()}
        return self.kinds[kind][key]

    def _stored(self, kind, key):
        if key not in self.kinds[kind]:
            raise RefusedError(404, f"{kind} {key} not found")
        return self.kinds[kind][key]

    def _page(self, kind, field, arguments, **filters):
        predicates = json.loads(arguments.get("filter") or "{}").get("predicates", [])
        if self.multi_user and kind != "versions" and not arguments.get("namespace"):
            raise RefusedError(400, "A namespace is required in multi-user mode")
        filters |= {predicate["key"]: predicate["stringValue"] for predicate in predicates}
        matches = [one for one in self.kinds[kind].values() if filters.items() <= one.items()]
        start = int(arguments.get("page_token") or 0)
        end = start + min(int(arguments.get("page_size") or 10), self.page_limit)
        more = {"next_page_token": str(end)} if end < len(matches) else {}
        return {field: matches[start:end], "total_size": len(matches), **more}

    def _check_config(self, body):
        """Check, like the backend, that the pipeline version exists and its parameters get values of their types."""
        self._stored("experiments", body["experiment_id"])
        if "pipeline_spec" in body:  # of a run without an uploaded pipeline; a client may send both YAML documents
            sent = body["pipeline_spec"]
            spec = _check_spec([sent["pipeline_spec"], sent["platform_spec"]] if "platform_spec" in sent else [sent])
        else:
            reference = body["pipeline_version_reference"]
            version = self._stored("versions", reference["pipeline_version_id"])
            assert version["pipeline_id"] == reference["pipeline_id"]
            spec = _read_spec(self.uploads[reference["pipeline_version_id"]])
        declared = spec["root"].get("inputDefinitions", {}).get("parameters", {})
        values = body["runtime_config"].get("parameters", {})
        for name, value in values.items():
            if name not in declared:
                raise RefusedError(400, f"unknown parameter {name}")
            if not isinstance(value, TYPES[declared[name]["parameterType"]]):
                raise RefusedError(400, f"parameter {name} is not a {declared[name]['parameterType']}")
        missing = [name for name in declared if name not in values and not declared[name].get("isOptional")]
        if missing:
            raise RefusedError(400, f"parameters {missing} are not optional, yet have neither default value nor value")


def _read_spec(text):
    return _check_spec(list(yaml.load_all(text, Loader=yaml.CSafeLoader)))  # libyaml: ten times as fast


def _check_spec(documents):
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
        def _respond(self):
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            try:
                status, response = 200, server.serve(self.command, self.path, self.headers, content)
            except RefusedError as error:
                status, response = error.status, {"code": 3, "message": str(error)}
            except (KeyError, AssertionError, json_format.ParseError) as error:
                status, response = 400, {"code": 3, "message": repr(error)}
            text = json.dumps(response).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = _respond  # noqa: N815

        def log_message(self, *_):
            pass

    return Handler
