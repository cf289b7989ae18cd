"""The node itself: what it leaves behind after a kill, and where it does not start. Run outside of its namespaces."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster import node
from tests.cluster.configuration import CGROUP
from tests.cluster.conftest import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture
def _can_start():
    if reason := node.what_is_missing():
        pytest.skip(reason)
    if node.first_process():
        pytest.skip("a node runs: make cluster-down")


def remaining() -> list[str]:
    """Return what a node has left on this machine."""
    left = [name for name in node.running_commands() if name in {*node.PROGRAMS, "containerd", "containerd-shim"}]
    left += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{CGROUP}")]
    left += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "tfopt-cluster" in line]
    left += [path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(("pods", "veth"))]
    return left + ([str(node.FOLDER)] if node.FOLDER.exists() else [])


def rules() -> str:
    """Return the rules of the firewall, without their counters."""
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout
    return "\n".join(line for line in saved.splitlines() if not line.startswith("#"))


@pytest.mark.usefixtures("_can_start")
def test_a_killed_node_leaves_cgroups_and_a_folder_which_stop_removes():
    before = rules()
    node.start()
    process = node.first_process()
    assert process
    os.kill(process, signal.SIGKILL)
    wait_for(lambda: not set(node.PROGRAMS) & set(node.running_commands()), seconds=30)
    assert node.FOLDER.exists()
    node.stop()
    assert remaining() == []
    assert rules() == before


@pytest.mark.usefixtures("_can_start")
def test_a_node_does_not_start_next_to_a_container_service(tmp_path):
    service = tmp_path / "dockerd"
    shutil.copy(shutil.which("sleep"), service)
    process = subprocess.Popen([service, "60"])
    try:
        with pytest.raises(SystemExit, match="dockerd runs on this machine"):
            node.start()
    finally:
        process.kill()
        process.wait()
    assert remaining() == []
