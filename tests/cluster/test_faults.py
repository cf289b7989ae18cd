"""Faults of a cluster while a run works: no half output, no cached result of a failed step, and no pod that stays.

Each test submits a pipeline of two steps, injects one fault while the first step works, and looks at exit code,
outputs, metadata and pods. A process is stopped (SIGSTOP) where a server is to be away for a time: its connections
hang, which is harder on clients than refused ones.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.cluster.conftest import set_values, wait_for
from tests.cluster.kubeflow import NAMESPACE, apply, kubectl
from tests.cluster.node import FOLDER
from tests.cluster.submission import Submission
from tests.kfp_backend.runs import content

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.usefixtures("servers")]
HOLD = '''
from tests import toys
from tfopt.artifacts import Files
from tfopt.component import Input
from tfopt.trace import Steps


def held(steps: Steps, data: Input[Files], *, seconds: float = 0.0, megabytes: int = 0, disk: int = 0) -> None:
    """Work for some time, and add what was counted.

    Args:
        steps: Adds the steps.
        data: A file.
        seconds: Duration of the first step.
        megabytes: Memory of the first step.
        disk: Megabytes of its temporary file.
    """
    first = steps(toys.hold, id="first", data=data, seconds=seconds, megabytes=megabytes, disk=disk)
    steps(toys.add, id="total", reports=[first.outputs["report"]])
'''
AWAY = 60.0  # seconds for which a server does not answer
WORK = 20.0  # seconds of the first step


def started(submit, data, *words: str, options: tuple[str, ...] = (), seconds: float = WORK) -> tuple[Submission, str]:
    """Submit the pipeline; return the submission and the pod of the first step once its component works."""
    submitted = submit(HOLD, *set_values(f"data={data[1]}", f"seconds={seconds}", *words), options=options)
    (pod,) = wait_for(submitted.running_pods, 180)
    wait_for(lambda: "hold" in commands(), 60)
    return submitted, pod


def commands() -> str:
    """Return the command lines of the node's processes that run a component."""
    return "\n".join(" ".join(process.cmdline()) for process in processes("tests.toys:"))


def processes(word: str) -> list[psutil.Process]:
    """Return the processes of the node with a word in their command line."""
    matches = []
    for process in psutil.process_iter():
        try:
            if any(word in part for part in process.cmdline()) and process.pid != os.getpid():
                matches.append(process)
        except psutil.Error:
            continue
    return matches


@contextmanager
def stopped(word: str) -> Iterator[None]:
    """Stop the processes whose command has a word, and continue them at the end."""
    matches = processes(word)
    assert matches, word
    for process in matches:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in matches:
            process.send_signal(signal.SIGCONT)


def check_completed(submitted: Submission, store) -> None:
    """Check that a run succeeded, and has whole outputs."""
    assert submitted.wait() == 0, submitted.errors()
    tasks = submitted.tasks()
    report = content(store, tasks["first"]["outputs"]["report"]["uri"])
    assert set(report) == {"half", "report.json"}
    assert json.loads(report["report.json"])["count"] == 36
    total = content(store, tasks["total"]["outputs"]["total"]["uri"])
    assert json.loads(total["report.json"])["count"] == 36
    check_no_pod_runs(submitted)


def check_failed(submitted: Submission) -> None:
    """Check that a run failed, and that its first step has no recorded output."""
    assert submitted.wait() == 1, submitted.errors()
    first = submitted.tasks()["first"]
    assert first["state"] in ("FAILED", "RUNNING")  # KFP's launcher records the end of a step, unless it is killed, too
    assert "report" not in first["outputs"]
    check_no_pod_runs(submitted)


def check_no_pod_runs(submitted: Submission) -> None:
    ended = ("Succeeded", "Failed")
    wait_for(lambda: all(pod["status"]["phase"] in ended for pod in submitted.all_pods()), 120)


@pytest.mark.parametrize("retries", [0, 2])  # Argo starts a pod again that was deleted by others
def test_a_deleted_pod_is_started_again(submit, store, data, retries):
    submitted, pod = started(submit, data, options=(f"retries={retries}",))
    kubectl("delete", "pod", pod, "--namespace", NAMESPACE, "--grace-period=0", "--force")
    check_completed(submitted, store)


def test_a_step_that_is_killed_for_its_memory_fails_with_the_reason_and_completes_with_more(submit, store, data):
    values = set_values(f"data={data[1]}", "megabytes=700")
    options = ("data:reuse=yes",)  # with the same inputs: a failed step must not be a cached result
    submitted = submit(HOLD, *values, options=(*options, "first:memory=512Mi"))
    check_failed(submitted)
    assert "OOMKilled" in submitted.reasons()
    again = submit(HOLD, *values, options=(*options, "first:memory=2Gi"))
    check_completed(again, store)
    assert again.tasks()["first"]["state"] == "COMPLETE"


def test_a_step_that_is_evicted_for_its_disk_fails_with_the_reason_and_completes_with_more(submit, store, data):
    values = set_values(f"data={data[1]}", "disk=600", "seconds=60")
    limits = {"type": "Container", "default": {"ephemeral-storage": "300Mi"}}
    limits["defaultRequest"] = {"ephemeral-storage": "10Mi"}
    ranges = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "disk"}, "spec": {"limits": [limits]}}
    apply([ranges])
    try:
        submitted = submit(HOLD, *values, options=("data:reuse=yes",))
        check_failed(submitted)
    finally:
        kubectl("delete", "limitrange", "disk", "--namespace", NAMESPACE)
    assert "ephemeral local storage usage exceeds the total limit" in submitted.reasons()
    again = submit(HOLD, *values, options=("data:reuse=yes",))
    check_completed(again, store)
    assert again.tasks()["first"]["state"] == "COMPLETE"


def test_a_kubelet_that_is_killed_changes_nothing(submit, store, data):
    submitted, _ = started(submit, data)
    os.kill(int((FOLDER / "kubelet.pid").read_text()), signal.SIGKILL)  # the node starts it again
    check_completed(submitted, store)


def test_an_api_server_that_is_away_changes_nothing(submit, store, data):
    submitted, _ = started(submit, data)
    with stopped("/kube-apiserver"):
        time.sleep(AWAY)
    check_completed(submitted, store)


def test_a_killed_controller_of_argo_changes_nothing(submit, store, data):
    submitted, _ = started(submit, data)
    for process in processes("/workflow-controller"):
        process.kill()
    check_completed(submitted, store)


def test_an_object_store_that_is_away_changes_nothing(submit, store, data):
    submitted, _ = started(submit, data, options=("retries=2",))
    with stopped("moto.server"):
        time.sleep(AWAY)  # longer than the step works: its upload waits
    check_completed(submitted, store)


def test_a_cancelled_run_leaves_no_pod_and_the_next_run_completes(submit, store, data):
    submitted, _ = started(submit, data)
    submitted.terminate()
    assert submitted.wait() == 1
    check_no_pod_runs(submitted)
    check_completed(started(submit, data)[0], store)


def test_a_completed_step_is_not_repeated_after_a_failure_of_a_later_one(submit, store, data):
    submitted, _ = started(submit, data, options=("data:reuse=yes", "total:node.pool=gpu"))
    wait_for(lambda: submitted.tasks().get("first", {}).get("state") == "COMPLETE", 120)
    submitted.terminate()
    assert submitted.wait() == 1
    again = submit(HOLD, *set_values(f"data={data[1]}", f"seconds={WORK}"), options=("data:reuse=yes",))
    check_completed(again, store)
    assert again.tasks()["first"]["state"] == "CACHED"
