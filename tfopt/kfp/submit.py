"""Upload of a DAG to a Kubeflow Pipelines server, and the start and monitoring of its runs."""

import contextlib
import hashlib
import logging
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import kfp_server_api

import tfopt
from tfopt.artifacts import Artifact
from tfopt.artifacts.base import files_below
from tfopt.dag.dag import Dag
from tfopt.dag.policy_checks import check_images
from tfopt.dag.source_checks import check_sources
from tfopt.errors import ComponentError
from tfopt.kfp import compiler
from tfopt.kfp.client import Server
from tfopt.kfp.images import Images
from tfopt.kfp.pending_pods import PendingPods
from tfopt.kfp.placement import place_steps
from tfopt.kfp.pod_options import Options
from tfopt.storage import remote_files

_FINAL_STATES = ("SUCCEEDED", "FAILED", "SKIPPED", "CANCELED")
_MAX_FAILED_POLLS = 20  # in a row, before waiting ends with an error

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Upload:
    """A DAG on the server: the ids of its experiment, pipeline and version, the parameters of its runs, and its tasks.

    The names of the tasks are KFP's, by the ids of the steps.
    """

    experiment: str
    pipeline: str
    version: str
    parameters: dict[str, object]
    tasks: dict[str, str]

    def settings(self, options: Options) -> dict[str, object]:
        """Return the arguments of the client's calls that start runs of it, now or at the times of a schedule."""
        of_run = {"params": self.parameters, "pipeline_root": options.root, "service_account": options.service_account}
        return {"pipeline_id": self.pipeline, "version_id": self.version, **of_run}


def upload(
    server: Server, dag: Dag, values: Mapping[str, Any], images: Images, options: Options, experiment: str | None = None
) -> Upload:
    """Compile a DAG and upload it; a version is identified by its YAML, so equal YAML is uploaded once.

    Sources have addresses that the cluster can read. The experiment has the name of the pipeline if None.

    Raises:
        ComponentError: If a value is not allowed, the DAG does not compile, or the server refuses.
    """
    name, parameters = compiler.pipeline_name(dag), run_parameters(dag, values)
    placed = place_steps(dag, images, options)
    check_images(dag, values, [step["image"] for step in placed.values()])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pipeline.yaml")
        tasks = compiler.compile_pipeline(dag, file, images, options, sources=values)
        version = f"{tfopt.__version__}-{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
        pipeline_id = _pipeline_id(server, name, dag.description)
        version_id = _version_id(server, file, pipeline_id, version)
    with server.translated_errors("create an experiment"):
        experiment_id = server.client.create_experiment(experiment or name, namespace=server.namespace).experiment_id
    return Upload(experiment_id, pipeline_id, version_id, parameters, tasks)


def run_parameters(dag: Dag, values: Mapping[str, Any]) -> dict[str, object]:
    """Convert the values of a DAG to parameters of the compiled pipeline.

    Raises:
        ComponentError: If a value is not allowed, or the cluster cannot read the address of a source.
    """
    for name, value in values.items():
        if name in dag.sources:
            compiler.check_address(name, value)
    checked = dag.values(values)
    return {f"{name}_uri" if name in dag.sources else name: checked[name] for name in values}


def stage_sources(dag: Dag, values: Mapping[str, Any], folder: str) -> dict[str, object]:
    """Upload the local sources below an address, and return the values with their addresses instead of their paths.

    The address contains a digest of the content: a source that is there already, complete, is not uploaded again.

    Raises:
        ComponentError: If a path has no artifact of the source's type, a step cannot use it, or the address cannot be
            written.
    """
    if not folder.startswith(compiler.SCHEMES):
        received = f"--stage {folder}"
        raise ComponentError(received, f"an address: {', '.join(compiler.SCHEMES)}", "pass s3://BUCKET/FOLDER")
    remote_files.check_scheme(folder)
    paths = {
        name: source.type.open(remote_files.local_path(values[name]).absolute()).path
        for name, source in dag.sources.items()
        if values.get(name) is not None and not remote_files.is_remote(str(values[name]))
    }
    check_sources(dag, dag.values({**values, **{name: str(path) for name, path in paths.items()}}))
    staged = dict(values)
    for name, path in paths.items():
        address = remote_files.join(folder, f"{_content_digest(path)}/{path.name}")
        complete = f"{address}.complete"  # written last: an upload that ended early is repeated
        if remote_files.read_file(complete) is None:
            log.info("uploading %s to %s", path, address)
            remote_files.upload(path, address)
            remote_files.write_file(complete, b"")
        staged[name] = address
    return staged


def _content_digest(path: Path) -> str:
    """Return a digest of all files of a source, model cards too."""
    files = files_below(path) if path.is_dir() else [path]
    lines = (f"{file.relative_to(path)} {Artifact(file).digest}" for file in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def start_run(server: Server, uploaded: Upload, name: str, options: Options) -> str:
    """Start a run and return its id."""
    with server.translated_errors(f"start {name}"):
        run = server.client.run_pipeline(uploaded.experiment, name, **uploaded.settings(options))
    return str(run.run_id)


def find_last_run(server: Server, uploaded: Upload) -> Any:
    """Return the newest run of a pipeline that succeeded, of the last 100 in its experiment; None if there is none."""
    settings = {"namespace": server.namespace} if server.namespace else {}
    with server.translated_errors("list runs"):
        page = server.client.list_runs(
            page_size=100, sort_by="created_at desc", experiment_id=uploaded.experiment, **settings
        )
        for run in page.runs or []:
            reference = run.pipeline_version_reference
            if str(run.state) == "SUCCEEDED" and reference and reference.pipeline_id == uploaded.pipeline:
                return server.client.get_run(run.run_id)
    return None


def wait_for_run(server: Server, run_id: str, start_timeout: float, seconds: float = 5.0) -> Any:
    """Log each change of state of a run and its steps until the run ends; return the run as the server describes it.

    A server that is temporarily unavailable is polled again; the run does not depend on this process.

    Raises:
        ComponentError: If the server stays unavailable, or refuses access, or a pod does not start in `start_timeout`
            seconds.
        KeyboardInterrupt: If the process received SIGINT, also in a finalizer, where Python ignores exceptions.
    """
    logged: dict[str, str] = {}
    pending = PendingPods(run_id, server.namespace or "kubeflow", start_timeout)
    with _recorded_signals() as raise_again:

        def pause() -> None:
            raise_again()
            time.sleep(seconds)

        while True:
            run = _poll(server, run_id, pause)
            _log_steps(run, logged)
            state = str(run.state or "PENDING")
            if logged.get("") != state:
                log.info("run %s: %s%s", run_id, state.lower(), f": {run.error.message}" if run.error else "")
                logged[""] = state
            if state in _FINAL_STATES:
                if state == "FAILED":
                    log.info("%s", pending.states_of_pods())
                return run
            pending.check(run)
            pause()


@contextlib.contextmanager
def _recorded_signals() -> Iterator[Callable[[], None]]:
    """Record SIGINT and SIGTERM besides calling their handlers, and yield a function that calls the handlers again.

    Python ignores an exception in a finalizer or weakref callback, and libraries end many calls in one. A loop that
    waits calls the function before each pause; it does nothing if no signal was received.
    """
    received: list[Callable[[], object]] = []

    def handle_again() -> None:
        for handle in received:
            handle()

    if threading.current_thread() is not threading.main_thread():  # only that one receives signals
        yield handle_again
        return
    present = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # the others are ignored, or have the kernel's default
    handlers = {int(number): handler for number, handler in present.items() if callable(handler)}

    def record(number: int, frame: FrameType | None) -> None:
        received.append(partial(handlers[number], number, None))
        handlers[number](number, frame)

    try:
        for number in handlers:
            signal.signal(number, record)
        yield handle_again
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _poll(server: Server, run_id: str, pause: Callable[[], None]) -> Any:
    """Return the run as the server describes it, after pauses while the server is temporarily unavailable."""
    failures = 0
    while True:
        try:
            with server.translated_errors(f"watch run {run_id}"):
                return server.client.get_run(run_id)
        except ComponentError as error:
            failures += 1
            cause = error.__cause__
            is_temporary = not isinstance(cause, kfp_server_api.ApiException) or (cause.status or 0) >= 500
            if not is_temporary or failures > _MAX_FAILED_POLLS:
                raise
            log.info("%s; trying again", error.received)
            pause()


def _pipeline_id(server: Server, name: str, description: str) -> str:
    """Return the id of a pipeline, and create the pipeline if it does not exist."""
    pipelines = server.list_all(server.client.list_pipelines, "pipelines", name, namespace=server.namespace)
    if pipelines:
        return str(pipelines[0].pipeline_id)
    pipeline = kfp_server_api.V2beta1Pipeline(
        name=name, display_name=name, description=description, namespace=server.namespace
    )
    with server.translated_errors(f"create pipeline {name}"):
        return str(server.client.pipelines.pipeline_service_create_pipeline(pipeline=pipeline).pipeline_id)


def _version_id(server: Server, file: Path, pipeline_id: str, version: str) -> str:
    """Return the id of a pipeline version, and upload the version if it does not exist."""
    list_page = server.client.list_pipeline_versions
    versions = server.list_all(list_page, "pipeline_versions", version, pipeline_id=pipeline_id)
    if versions:
        return str(versions[0].pipeline_version_id)
    with server.translated_errors(f"upload version {version}"):
        uploaded = server.client.upload_pipeline_version(str(file), version, pipeline_id=pipeline_id)
    return str(uploaded.pipeline_version_id)


def _log_steps(run: Any, logged: dict[str, str]) -> None:
    """Log changes of the steps, without KFP's own drivers and groups of tasks."""
    for task in (run.run_details.task_details if run.run_details else None) or []:
        state, name = str(task.state or ""), str(task.display_name or "")
        if (
            not state
            or name == "root"
            or name.startswith("executor")
            or name.endswith("-driver")
            or logged.get(task.task_id) == state
        ):
            continue
        logged[task.task_id] = state
        log.info("%s: %s%s", name, state.lower(), f": {task.error.message}" if task.error else "")
