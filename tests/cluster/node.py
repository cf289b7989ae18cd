"""One Kubernetes node for tests: ``python -m tests.cluster.node start|stop|enter COMMAND|test COMMAND``, as root.

All programs and pods run in network, mount and process namespaces of their own (``unshare``), whose first process is
`run`. When that process ends, however it ends, the kernel ends every other process and removes mounts, network
devices and iptables rules of the namespaces with it. Then a folder and empty cgroups remain, which `stop` removes.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.configuration import ADDRESS, API, CGROUP, NODE, PODS, PRIVATE, commands, write_configuration
from tests.cluster.images import REPOSITORY, write_images

VARIABLE = "CLUSTER_BIN"
FOLDER = Path("/tmp/tfopt-cluster")
TRITON = FOLDER / "triton"
SDKS = FOLDER / "sdks"  # the oldest and the newest of KFP's that pyproject.toml allows
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "etcd", "pause")
OF_DEBIAN = ("containerd", "runc", "ctr", "ip", "kubectl", "unshare", "nsenter")  # kubectl can be in that folder
SERVICES = {"containerd", "dockerd", "crio", "kubelet"}
CGROUPS = Path("/sys/fs/cgroup")


def what_is_missing() -> str | None:
    """Return why the node cannot be started on this machine; None if it can."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return f"the variable {VARIABLE} names no folder with the programs of a cluster (docs/kubeflow.md)"
    absent = [name for name in PROGRAMS if not os.access(Path(folder) / name, os.X_OK)]
    absent += [name for name in OF_DEBIAN if not shutil.which(name)]
    if absent:
        return f"{VARIABLE}={folder}: no program {', '.join(absent)} (tests/cluster/build.sh; docs/kubeflow.md)"
    if os.geteuid() != 0:
        return "not root: the node has namespaces of its own"
    if running := sorted(SERVICES & set(running_commands())):
        return f"{', '.join(running)} runs on this machine: stop it first, or use another machine"
    return None


def running_commands() -> list[str]:
    """Return the name of each process of this machine."""
    names = []
    for file in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            names.append(file.read_text().strip())
    return names


def first_process(folder: Path = FOLDER) -> int | None:
    """Return the process id of the node's first process, as this process sees it; None if it does not run."""
    try:
        parent = int((folder / "pid").read_text())
        if str(folder) not in Path(f"/proc/{parent}/cmdline").read_text().split("\0"):
            return None  # another process got the number
        return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def start(folder: Path = FOLDER, seconds: float = 300) -> None:
    """Start the node and wait until it is ready."""
    stop(folder)
    if reason := what_is_missing():
        raise SystemExit(f"no cluster: {reason}")
    folder.mkdir(parents=True)
    (folder / "logs").mkdir()
    spaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*spaces, sys.executable, "-m", "tests.cluster.node", "run", str(folder)]
    with (folder / "logs" / "node.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    (folder / "pid").write_text(str(process.pid))
    end = time.monotonic() + seconds
    while not (folder / "ready").exists():
        if process.poll() is not None or time.monotonic() > end:
            text = (folder / "logs" / "node.log").read_text()[-2000:]
            raise SystemExit(f"the node is not ready; logs are in {folder}/logs:\n{text}")
        time.sleep(0.2)


def stop(folder: Path = FOLDER) -> None:
    """Kill the node's processes, and remove its cgroups and its folder; without the folder there is no node."""
    if not folder.exists():
        return
    if process := first_process(folder):
        os.kill(process, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitid(os.P_PIDFD, os.pidfd_open(process), os.WEXITED)
        while Path(f"/proc/{process}").exists():  # until the kernel has ended all processes of the namespace
            time.sleep(0.05)
    for top in {*CGROUPS.glob(f"*/{CGROUP}"), CGROUPS / CGROUP}:
        for path, _, _ in os.walk(top, topdown=False):
            _remove_cgroup(Path(path))
    shutil.rmtree(folder, ignore_errors=True)


def _remove_cgroup(path: Path, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            return path.rmdir()
        except OSError:  # the kernel still ends its processes
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def enter(folder: Path, command: list[str]) -> int:
    """Run a command in the node's namespaces, with its kubeconfig; return its exit code."""
    process = first_process(folder)
    if not process:
        raise SystemExit(f"no node runs in {folder}: make cluster-up")
    spaces = [f"--target={process}", "--net", "--mount", "--pid", f"--wdns={Path.cwd()}"]
    environment = {**os.environ, "KUBECONFIG": str(folder / "admin.kubeconfig")}
    return subprocess.run(["nsenter", *spaces, *command], env=environment, check=False).returncode


def test(folder: Path, command: list[str]) -> int:
    """Start the node, run a command in it, and stop it; do nothing where it cannot be started."""
    stop(folder)
    if reason := what_is_missing():
        print(f"skipped: {reason}")
        return 0
    from tests import triton
    from tests.kfp_backend.runs import install_sdk

    try:
        start(folder)
        triton.install(folder / TRITON.name)
        for end in ("oldest", "newest"):
            install_sdk(folder / SDKS.name / end, end)
        return enter(folder, command)
    finally:
        stop(folder)


class Node:
    """The first process of the namespaces: starts the programs, starts them again when they end, and reaps processes.

    `SIGTERM` ends it, and with it everything else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands = commands(folder, Path(os.environ[VARIABLE]))
        self.running: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}

    def run(self) -> None:
        """Start everything, report that the node is ready, and wait for ever."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        write_configuration(self.folder)
        self._prepare_machine()
        for name in ("etcd", "kube-apiserver", "containerd"):
            self._start(name)
        images = write_images(self.folder / "images", Path(os.environ[VARIABLE]))
        self._wait(lambda: Path("/run/containerd/containerd.sock").exists())
        for image in images:
            self._call("ctr", "--namespace", "k8s.io", "images", "import", str(image))
        shutil.rmtree(self.folder / "images")
        self._wait(self._api_answers)
        for name in ("names", "kube-scheduler", "kube-controller-manager", "kubelet"):
            self._start(name)
        self._wait(self._is_ready)
        (self.folder / "ready").touch()
        while True:
            self._reap()
            time.sleep(0.2)

    def _prepare_machine(self) -> None:
        for path in PRIVATE:
            self._call("mount", "-t", "tmpfs", "tmpfs", path)
        self._call("mount", "--make-rshared", "/")
        self._call("ip", "link", "set", "lo", "up")
        self._call("ip", "address", "add", f"{API}/32", "dev", "lo")
        self._call("ip", "link", "add", "pods", "type", "bridge")
        self._call("ip", "address", "add", f"{ADDRESS}/{PODS.partition('/')[2]}", "dev", "pods")
        self._call("ip", "link", "set", "pods", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")
        unified = (CGROUPS / "cgroup.controllers").exists()
        for top in (
            [CGROUPS] if unified else [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]
        ):
            (top / CGROUP).mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # version 1: a new group has none
                if not unified and (top / name).exists():
                    (top / CGROUP / name).write_text((top / name).read_text())

    def _call(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")

    def _start(self, name: str) -> None:
        environment = {**os.environ, "KUBECONFIG": "", "PYTHONPATH": str(REPOSITORY)}
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(self.commands[name], stdout=log, stderr=log, env=environment, cwd=self.folder)
        self.running[process.pid] = name, process  # Python itself waits for a process without a reference
        (self.folder / f"{name}.pid").write_text(str(process.pid))

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if started := self.running.pop(ended[0], None):
                    name, process = started
                    process.returncode = ended[1]
                    print(f"{name} ended with status {ended[1]}, and is started again", flush=True)
                    time.sleep(1)
                    self._start(name)

    def _wait(self, condition) -> None:
        while not condition():
            self._reap()
            time.sleep(0.3)

    def _api_answers(self) -> bool:
        return self._kubectl("get", "--raw", "/readyz").returncode == 0

    def _is_ready(self) -> bool:
        """Return whether the node is ready, and has the account and the certificate that every pod needs."""
        ready = "{.status.conditions[?(@.type=='Ready')].status}{.spec.taints}"
        node = self._kubectl("get", "node", NODE, "--output", f"jsonpath={ready}")
        accounts = self._kubectl("get", "serviceaccount/default", "configmap/kube-root-ca.crt")
        return node.stdout == "True" and accounts.returncode == 0

    def _kubectl(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = ["kubectl", f"--kubeconfig={self.folder}/admin.kubeconfig", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def main(action: str, *command: str) -> int:
    if programs := os.environ.get(VARIABLE):  # the programs start in other folders
        os.environ[VARIABLE] = str(Path(programs).resolve())
        os.environ["PATH"] += os.pathsep + os.environ[VARIABLE]
    if action == "start":
        start()
    elif action == "stop":
        stop()
    elif action == "enter":
        return enter(FOLDER, list(command))
    elif action == "test":
        return test(FOLDER, list(command))
    elif action == "run":
        Node(Path(command[0])).run()
    else:
        raise SystemExit(f"received: {action}; expected: start, stop, enter, test or run")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
