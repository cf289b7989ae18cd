"""Start a Flink or a Spark cluster of several processes on this machine."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.beam_engines import packages
from tfopt.processes.parent_death import bound_command

HOST = "127.0.0.1"
BRIDGE = "10.246.0.1"  # between the networks of TaskManagers
# Flink's shell scripts would compute these.
MEMORY = {
    **{"framework.heap.size": 128, "framework.off-heap.size": 128, "task.heap.size": 512, "task.off-heap.size": 0},
    **{"network.min": 128, "network.max": 128, "managed.size": 512, "jvm-metaspace.size": 256},
    **{"jvm-overhead.min": 192, "jvm-overhead.max": 192},
}
OPENED = [
    f"--add-opens=java.base/{name}=ALL-UNNAMED"
    for name in ("java.lang", "java.lang.invoke", "java.net", "java.io", "java.nio", "java.util", "sun.nio.ch")
]
WORKERS = [  # each TaskManager, and each executor of Spark, starts a Python process with this program
    "--environment_type=PROCESS",
    f"--environment_config={json.dumps({'command': str(Path(sys.executable).with_name('tfopt-beam-worker'))})}",
]


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        arguments: Beam's arguments that run a pipeline on it.
        page: Address of what the JobManager, or Spark's master, says about its jobs, in JSON.
        workers: Its TaskManagers, or Spark's workers.
        add_worker: Starts another one.
        hosts: The networks of its TaskManagers, if each has one of its own.
    """

    arguments: list[str]
    page: str
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    add_worker: Callable[..., None] = lambda: None
    hosts: list[str] = field(default_factory=list)

    def kill_worker(self) -> None:
        """Kill a worker by SIGKILL."""
        worker = self.workers.pop()
        worker.send_signal(signal.SIGKILL)
        worker.wait()


@contextlib.contextmanager
def flink(folder: Path, workers: int, *, retries: int = 0, hosts: bool = False) -> Iterator[Cluster]:
    """Start a JobManager, TaskManagers with one slot each.

    Args:
        folder: Folder of logs and temporary files.
        workers: Number of TaskManagers.
        retries: How often Flink runs a failed part of a job again.
        hosts: Give each TaskManager a network of its own, as on a machine of its own; needs root.
    """
    rest, rpc, address = free_port(), free_port(), BRIDGE if hosts else HOST
    settings = {
        "jobmanager.rpc.address": address,
        "jobmanager.rpc.port": rpc,
        "jobmanager.bind-host": "0.0.0.0" if hosts else HOST,  # the JobManager finds its own files at localhost
        "rest.address": address,
        "rest.bind-address": address,
        "rest.port": rest,
        "rest.bind-port": rest,
        "taskmanager.numberOfTaskSlots": 1,
        "taskmanager.cpu.cores": 1,
        **{f"taskmanager.memory.{name}": f"{megabytes}m" for name, megabytes in MEMORY.items()},
        "heartbeat.interval": 1000,
        "heartbeat.timeout": 10000,
        "io.tmp.dirs": folder,
        "parallelism.default": workers,
        "restart-strategy.type": "fixed-delay" if retries else "none",
        "restart-strategy.fixed-delay.attempts": retries,
        "restart-strategy.fixed-delay.delay": "1s",
    }
    lib = packages.distribution(packages.FLINK) / "lib"
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    base = ["java", "-Xmx1g", *OPENED, "-cp", f"{lib}/*"]
    configuration = ["--configDir", str(folder / "conf")]
    main = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
    task_manager = [*base, "org.apache.flink.runtime.taskexecutor.TaskManagerRunner", *configuration]
    with contextlib.ExitStack() as stack:
        networks = stack.enter_context(_networks(workers)) if hosts else {}
        stack.enter_context(process(folder / "jobmanager.log", [*base, main, *configuration]))
        server = f"--flink_job_server_jar={packages.job_server('flink')}"
        arguments = ["--runner=FlinkRunner", "--flink_version=1.19", server, f"--flink_master={address}:{rest}"]
        cluster = Cluster([*arguments, f"--parallelism={workers}", *WORKERS], f"http://{address}:{rest}/jobs/overview")
        cluster.hosts = list(networks)

        def add_worker(network: str = "") -> None:
            own = networks.get(network, HOST)
            command = ["ip", "netns", "exec", network, *task_manager] if network else task_manager
            command = [*command, "-D", f"taskmanager.host={own}", "-D", f"taskmanager.bind-host={own}"]
            log = folder / f"taskmanager-{time.monotonic_ns()}.log"
            cluster.workers.append(stack.enter_context(process(log, command)))

        cluster.add_worker = add_worker
        for network in networks or [""] * workers:
            add_worker(network)
        wait_for(f"http://{address}:{rest}/overview", f'"slots-total":{workers},')
        yield cluster


@contextlib.contextmanager
def _networks(count: int) -> Iterator[dict[str, str]]:
    """Create networks that are connected by a bridge; yield the address in each, and remove them at the end."""
    names = {f"flink{number}": f"{BRIDGE.rpartition('.')[0]}.{number}" for number in range(2, 2 + count)}
    with contextlib.ExitStack() as stack:

        def create(*words: str, kind: str) -> None:
            subprocess.run(["ip", kind, "add", *words], check=True)
            stack.callback(subprocess.run, ["ip", kind, "delete", words[0]], check=False)

        create("flink", "type", "bridge", kind="link")
        subprocess.run(["ip", "address", "add", f"{BRIDGE}/24", "dev", "flink"], check=True)
        subprocess.run(["ip", "link", "set", "flink", "up"], check=True)
        for name, address in names.items():
            create(name, kind="netns")
            create(name, "type", "veth", "peer", "name", "eth0", "netns", name, kind="link")
            subprocess.run(["ip", "link", "set", name, "master", "flink", "up"], check=True)
            for words in (f"address add {address}/24 dev eth0", "link set eth0 up", "link set lo up"):
                subprocess.run(["ip", "-n", name, *words.split()], check=True)
        yield names


@contextlib.contextmanager
def partition(network: str) -> Iterator[None]:
    """Disconnect a network from the others."""
    subprocess.run(["ip", "link", "set", network, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "set", network, "up"], check=True)


@contextlib.contextmanager
def spark(folder: Path, workers: int) -> Iterator[Cluster]:
    """Start a master, and workers with one core each."""
    folder.mkdir(parents=True)
    home = packages.distribution(packages.SPARK)
    port, page = free_port(), free_port()
    environment = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.12", "SPARK_LOCAL_DIRS": str(folder)}
    environment |= {"SPARK_LOCAL_IP": HOST}
    base = ["java", "-Xmx512m", *OPENED, "-cp", f"{home}/jars/*"]
    master = ["org.apache.spark.deploy.master.Master", "--host", HOST, "--port", str(port), "--webui-port", str(page)]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", HOST, "--cores", "1", "--memory", "1g"]
    worker += ["--webui-port", "0", "--work-dir", str(folder / "work"), f"spark://{HOST}:{port}"]
    properties = [f"-Dspark.driver.host={HOST}", f"-Dspark.driver.bindAddress={HOST}", "-Dspark.ui.enabled=false"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(process(folder / "master.log", [*base, *master], environment))
        server = f"--spark_job_server_jar={packages.job_server('spark')}"
        arguments = ["--runner=SparkRunner", f"--spark_master_url=spark://{HOST}:{port}", server]
        arguments += [f"--job_server_jvm_properties={name}" for name in properties]
        cluster = Cluster([*arguments, *WORKERS], f"http://{HOST}:{page}/json/")

        def add_worker() -> None:
            log = folder / f"worker-{time.monotonic_ns()}.log"
            cluster.workers.append(stack.enter_context(process(log, [*base, *worker], environment)))

        cluster.add_worker = add_worker
        for _ in range(workers):
            add_worker()
        wait_for(cluster.page, f'"aliveworkers" : {workers},')
        yield cluster


@contextlib.contextmanager
def process(
    log: Path, command: list[str], environment: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process that writes to a log; end it, and what it has started, at the end of the block."""
    with log.open("wb") as stream:
        started = subprocess.Popen(
            bound_command(*command),
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd=log.parent,
            start_new_session=True,
        )
        try:
            yield started
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGTERM)
            try:
                started.wait(10)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)


def wait_for(address: str, text: str) -> None:
    """Wait until a page contains a text."""

    def contains() -> bool:
        with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(address) as page:
            return text in page.read().decode()
        return False

    wait_until(contains, f"{text} at {address}")


def wait_until(is_true: Callable[[], bool], what: str, seconds: float = 90) -> None:
    """Wait until a condition is true, or raise TimeoutError."""
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.2)


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as opened:
        opened.bind((HOST, 0))
        return int(opened.getsockname()[1])
