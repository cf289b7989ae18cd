"""KFP's own API server, driver and launcher on this machine, without a cluster.

`Backend` starts the programs of a KFP release with what they need around them: a MariaDB server, an S3 server (moto),
the store of ML Metadata behind its gRPC service, and the part of the Kubernetes API that they call. Argo is replaced by
`tests.kfp_backend.workflow`: it runs each container of a workflow as a process with mounts of its own, so the launcher,
which is the entry point of each step's container, starts the step's command as it does in a pod.
"""

import base64
import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.kfp_backend.kubernetes_api import KubernetesApi
from tests.kfp_backend.workflow import Container, WorkflowRunner

PROGRAMS = ("apiserver", "driver", "launcher-v2")
VARIABLE = "KFP_BACKEND"
NAMESPACE = "kubeflow"
ADDRESS = "127.77.0.1"  # of this machine, like all of 127.0.0.0/8: the ports of KFP's services are not free to choose
NAMES = ("ml-pipeline", "metadata-grpc-service")
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
# The API server does not start without the address of a service that renders charts; nothing calls it.
OF_THE_API_SERVER = {f"ML_PIPELINE_VISUALIZATIONSERVER_SERVICE_{key}": ADDRESS for key in ("HOST", "PORT")}
# Without checksums behind the content of a request, which moto's server waits for; servers from KFP 2.17 on write none.
CHECKSUMS = {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required", "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required"}
POD = Path(__file__).with_name("pod.sh")


def what_is_missing() -> str | None:
    """Return why the backend cannot run on this machine; None if it can."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return f"the variable {VARIABLE} names no folder with KFP's programs {', '.join(PROGRAMS)} (docs/kubeflow.md)"
    absent = [name for name in PROGRAMS if not os.access(Path(folder) / name, os.X_OK)]
    if absent:
        return f"{VARIABLE}={folder}: no program {', '.join(absent)} (docs/kubeflow.md)"
    if not shutil.which("mariadbd"):
        return "no MariaDB: apt-get install mariadb-server-core mariadb-client-core"
    if os.geteuid() != 0:
        return "not root: each step gets mounts of its own"
    return None


class Ran(NamedTuple):
    """A container that ran: with its exit code and what it printed."""

    container: Container
    code: int
    log: str

    @property
    def component(self) -> str | None:
        """The component of a step's container; None for KFP's own containers."""
        words = self.container.spec.get("args", [])
        return words[words.index("tfopt.run") + 1] if "tfopt.run" in words else None


class Backend:
    """Start with ``with Backend(FOLDER) as backend``.

    Attributes:
        url: The address of the API server.
        cluster: The Kubernetes API, with the objects that the backend created.
        claims: The folder of each persistent volume claim.
        ran: The containers that ran.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = Path(os.environ[VARIABLE])
        self.url = f"http://{ADDRESS}:8888"
        self.claims: dict[str, Path] = {}
        self.ran: list[Ran] = []
        self.failure: Exception | None = None
        self._done: set[str] = set()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Backend":
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        account = self.folder / "account"
        account.mkdir()
        self.cluster = stack.enter_context(KubernetesApi(ADDRESS, account))
        (account / "namespace").write_text(NAMESPACE)
        (account / "token").write_text("token")
        hosts = [f"{ADDRESS} {name}.{NAMESPACE}.svc.cluster.local" for name in NAMES]
        hosts += [f"{ADDRESS} localhost{ADDRESS}"]  # the API server's gateway writes localhost before the flag's value
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
        self.storage = stack.enter_context(_s3_server())
        self._configure_cluster()
        self._start_process(stack, "metadata", self._metadata_command())
        self._start_process(stack, "mariadb", self._database_command())
        api_server = [str(self.programs / "apiserver"), f"--config={self._api_server_configuration()}"]
        flags = [f"--rpcPortFlag={ADDRESS}:8887", f"--httpPortFlag={ADDRESS}:8888", "-logtostderr=true"]
        started = self._in_pod("apiserver", [*api_server, *flags])
        environment = {**self._environment(), **OF_THE_API_SERVER, "HOME": str(self.folder)}
        process = self._start_process(stack, "apiserver", started, environment)
        _wait_for(f"{self.url}/apis/v2beta1/healthz", process, self.folder / "apiserver.log")

    def _configure_cluster(self) -> None:
        self.cluster.add_secret("artifacts", accesskey="test", secretkey="test")
        endpoint = self.storage.removeprefix("http://")
        secret = {"secretName": "artifacts", "accessKeyKey": "accesskey", "secretKeyKey": "secretkey"}
        s3 = {"endpoint": endpoint, "region": "us-east-1", "disableSSL": True}
        providers = {"s3": {"default": {**s3, "credentials": {"fromEnv": False, "secretRef": secret}}}}
        data = {"defaultPipelineRoot": "s3://mlpipeline/v2/artifacts", "providers": json.dumps(providers)}
        self.cluster.add("configmaps", "kfp-launcher", kind="ConfigMap", apiVersion="v1", data=data)

    def _metadata_command(self) -> list[str]:
        database = str(self.folder / "metadata.sqlite")
        return [sys.executable, "-m", "tests.kfp_backend.metadata_server", f"{ADDRESS}:8080", database]

    def _database_command(self) -> list[str]:
        data, socket = self.folder / "mariadb", self.folder / "mariadb.sock"
        install = [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
        ]
        subprocess.run([*install, "--skip-test-db", "--user=root"], check=True, capture_output=True)
        server = ["mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={socket}", "--user=root"]
        return [*server, f"--bind-address={ADDRESS}", "--port=3306", "--skip-name-resolve", "--skip-grant-tables"]

    def _api_server_configuration(self) -> Path:
        store = {"Host": self.storage.removeprefix("http://"), "AccessKey": "test", "SecretAccessKey": "test"}
        database = {"DBName": "mlpipeline", "GroupConcatMaxLen": "4194304"}  # bytes of all tasks of a run
        settings = {
            "DBDriverName": "mysql",
            "DBConfig": {
                "MySQLConfig": {**database, "Host": ADDRESS, "Port": "3306", "User": "root"},
                "ConMaxLifeTime": "120s",
            },
            "ObjectStoreConfig": {**store, "BucketName": "mlpipeline", "PipelinePath": "pipelines", "Secure": False},
            "InitConnectionTimeout": "60s",
        }
        folder = self.folder / "configuration"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(settings))
        return folder

    def _environment(self) -> dict[str, str]:
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        cluster = {"KUBERNETES_SERVICE_HOST": self.cluster.host, "KUBERNETES_SERVICE_PORT": str(self.cluster.port)}
        remaining = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        return {**remaining, **KEYS, **CHECKSUMS, **cluster, "PATH": programs, "POD_NAMESPACE": NAMESPACE}

    def _in_pod(self, name: str, command: list[str], mounts: list[str] | None = None) -> list[str]:
        root = self.folder / "pods" / name
        root.mkdir(parents=True)
        pod = [
            "unshare",
            "--mount",
            "sh",
            str(POD),
            str(root),
            str(self.folder / "account"),
            str(self.folder / "hosts"),
        ]
        return [*pod, *(mounts or []), "--", *command]

    def _start_process(
        self, stack: contextlib.ExitStack, name: str, command: list[str], environment: dict[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        stack.callback(_stop, process)
        return process

    def run_workflows(self) -> None:
        """Run the workflows that the API server has created and that have not run yet."""
        for workflow in self.cluster.of_kind("workflows"):
            if workflow["metadata"]["name"] not in self._done:
                self._done.add(workflow["metadata"]["name"])
                WorkflowRunner(workflow, self._run_container, self._report).run()

    @contextlib.contextmanager
    def running_workflows(self) -> Iterator[None]:
        """Run workflows in a thread as soon as they are created, as Argo's controller does; leave out earlier ones."""
        self.leave_out_workflows()
        stopped = threading.Event()

        def follow() -> None:
            while not stopped.is_set():
                try:
                    self.run_workflows()
                except Exception as error:
                    self.failure = error
                    return
                self.cluster.changed.wait(0.2)
                self.cluster.changed.clear()

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def pause(self, seconds: float) -> None:
        """Wait between two questions for the state of a run; raise what ended the thread that runs it."""
        threading.Event().wait(min(seconds, 0.3))
        if self.failure:
            raise self.failure

    def leave_out_workflows(self) -> None:
        """Do not run the workflows that were created so far."""
        self._done |= {workflow["metadata"]["name"] for workflow in self.cluster.of_kind("workflows")}

    def _report(self, workflow: dict[str, Any]) -> bytes:
        """Report the state of a workflow to the API server, as KFP's persistence agent does."""
        name = workflow["metadata"]["name"]
        path = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/workflows/{name}"
        request = urllib.request.Request(
            f"{self.url}/apis/v1beta1/workflows",
            json.dumps(json.dumps(workflow)).encode(),
            {"content-type": "application/json"},
        )
        for _ in range(20):  # the server stores a run only after its workflow, and deletes workflows without a run
            self.cluster.objects[path] = workflow
            try:
                with urllib.request.urlopen(request) as response:
                    return response.read()
            except urllib.error.HTTPError as error:
                failure = error
                threading.Event().wait(0.5)
        raise failure

    def _run_container(self, container: Container) -> tuple[int, dict[str, str]]:
        number = len(self.ran)
        results = self.folder / "results" / str(number)
        results.mkdir(parents=True)
        paths = {parameter["name"]: results / parameter["name"] for parameter in container.outputs}
        words = [*container.spec["command"], *container.spec.get("args", [])]
        values = self._variables(container)
        for name, path in paths.items():
            words = [word.replace(f"{{{{outputs.parameters.{name}.path}}}}", str(path)) for word in words]
        for name, value in values.items():
            words = [word.replace(f"$({name})", value) for word in words]
        command = self._in_pod(str(number), [self._program(words[0]), *words[1:]], self._mounts(container, number))
        environment = {**self._environment(), **values}
        ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.ran.append(Ran(container, ran.returncode, ran.stdout.decode(errors="replace")))
        (self.folder / f"{number}-{container.pod['metadata']['name']}.log").write_bytes(ran.stdout)
        shutil.rmtree(self.folder / "volumes" / str(number), ignore_errors=True)
        defaults = {output["name"]: output["valueFrom"].get("default") for output in container.outputs}
        written = {name: path.read_text() if path.exists() else defaults[name] for name, path in paths.items()}
        return ran.returncode, {name: value for name, value in written.items() if value is not None}

    def _program(self, word: str) -> str:
        """Return the file of one of KFP's programs; a pod has the launcher under the name ``launch``."""
        name = Path(word).name
        return str(self.programs / {"launch": "launcher-v2", "launcher-v2": "launcher-v2", "driver": "driver"}[name])

    def _variables(self, container: Container) -> dict[str, str]:
        values = {}
        for entry in container.spec.get("env", []):
            source = entry.get("valueFrom", {})
            if "fieldRef" in source:
                values[entry["name"]] = container.pod["metadata"][source["fieldRef"]["fieldPath"].rpartition(".")[2]]
            elif "secretKeyRef" in source:
                values[entry["name"]] = self._secret(source["secretKeyRef"]["name"])[source["secretKeyRef"]["key"]]
            else:
                values[entry["name"]] = entry.get("value", "")
        return values

    def _secret(self, name: str) -> dict[str, str]:
        data = self.cluster.objects[f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"]["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def _mounts(self, container: Container, number: int) -> list[str]:
        """Return the mounts of a container: its claims and secrets, and an empty folder for each other volume."""
        volumes = {volume["name"]: volume for volume in container.pod.get("volumes", [])}
        mounts = []
        for mount in container.spec.get("volumeMounts", []):
            volume = volumes.get(mount["name"], {})
            source = self.folder / "volumes" / str(number) / mount["name"]
            if "persistentVolumeClaim" in volume:
                source = self.claims[volume["persistentVolumeClaim"]["claimName"]]
            source.mkdir(parents=True, exist_ok=True)
            if "secret" in volume:
                for key, value in self._secret(volume["secret"]["secretName"]).items():
                    (source / key).write_text(value)
            mounts.append(f"{source}:{mount['mountPath']}")
        return mounts


@contextlib.contextmanager
def _s3_server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it logs each request
    server = ThreadedMotoServer(ip_address=ADDRESS, port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:  # the API server waits for its connections
        process.kill()
        process.wait()


def _wait_for(url: str, process: "subprocess.Popen[bytes]", log: Path, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url) as response:
            response.read()
            return
        threading.Event().wait(0.5)
    failures = [line for line in log.read_text(errors="replace").splitlines() if line.startswith(("E", "F"))]
    raise TimeoutError("\n".join([f"{url} did not answer", *failures[:20]]))
