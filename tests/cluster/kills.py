"""Kill random processes of the node while runs work: ``python -m tests.cluster.kills 200``, in the node's namespaces.

Victims are the processes of steps, drivers and Argo's executor in pods, the servers of KFP, Argo's controller, and the
programs of Kubernetes itself, but not the stores, which hold their data in memory. A run may fail, within a limit
of time. It is a defect if it succeeds with other outputs than those of an undisturbed run, if a failed step has a
recorded output, if a pod stays, or if the next run without kills fails or takes over a half result.
"""

import argparse
import collections
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.cluster.conftest import bucket, set_values, wait_for
from tests.cluster.submission import Submission
from tests.cluster.test_faults import HOLD, processes
from tests.kfp_backend.runs import content

VICTIMS = {
    "step": "tests.toys:",
    "launcher": "launcher-v2",
    "driver": "/bin-of-image/driver",
    "Argo's executor": "argoexec",
    "Argo's controller": "workflow-controller",
    "KFP's API server": "/bin-of-image/apiserver",
    "persistence agent": "persistence_agent",
    "kubelet": "/kubelet",
    "kube-apiserver": "/kube-apiserver",
    "kube-scheduler": "/kube-scheduler",
    "kube-controller-manager": "/kube-controller-manager",
    "etcd": "/etcd",
    "containerd": "containerd-shim",
}
KEY = "kills/rows.csv"
LIMIT = 900.0  # seconds of a run with kills
PAUSE = 12.0  # seconds between two kills, on average


def kill_one(rng: random.Random) -> str | None:
    """Kill a process of a random kind that runs; return the kind."""
    name = rng.choice(list(VICTIMS))
    victims = [process for process in processes(VICTIMS[name]) if process.pid != 1]
    if not victims:
        return None
    try:
        rng.choice(victims).kill()
    except psutil.Error:
        return None
    return name


def submit(folder: Path, number: int, retries: int) -> Submission:
    """Submit a run with parameters that no other run has, so that it takes no result of another one."""
    words = set_values(f"data=minio://mlpipeline/{KEY}", f"seconds={5 + number / 1000}")

    def submitted() -> Submission | None:
        try:
            return Submission(folder, HOLD, *words, options=(f"retries={retries}",))
        except (AssertionError, RuntimeError, ValueError, KeyError):  # a server is being started again
            return None

    return wait_for(submitted, 300)


def disturb(submitted: Submission, rng: random.Random, killed: collections.Counter[str]) -> list[str]:
    """Kill processes until a run ends; return its defects."""
    end = time.monotonic() + LIMIT
    while submitted.process.poll() is None:
        if time.monotonic() > end:
            submitted.process.kill()
            return [f"not ended after {LIMIT:.0f} s"]
        time.sleep(rng.expovariate(1 / PAUSE))
        if kind := kill_one(rng):
            killed[kind] += 1
    return []


def defects(submitted: Submission, store) -> list[str]:
    """Return what is wrong after the end of a run."""
    wrong = []
    tasks = wait_for(lambda: tasks_of(submitted), 180)
    for step, output, count in (("first", "report", 36), ("total", "total", 36)):
        task = tasks.get(step)
        recorded = task["outputs"].get(output) if task else None
        if task and task["state"] != "COMPLETE" and recorded:
            wrong.append(f"{step}: {task['state']}, with an output")
        if task and task["state"] == "COMPLETE":
            files = content(store, recorded["uri"]) if recorded else {}
            report = json.loads(files.get("report.json", "{}"))
            if report.get("count") != count:
                wrong.append(f"{step}: complete, with {files}")
    if submitted.process.returncode == 0 and {"first", "total"} - set(tasks):
        wrong.append(f"succeeded without {sorted({'first', 'total'} - set(tasks))}")
    try:
        wait_for(lambda: not submitted.running_pods(), 300)
    except TimeoutError:
        wrong.append(f"pods run after the end: {submitted.running_pods()}")
    return wrong


def tasks_of(submitted: Submission) -> dict | None:
    """Return the recorded tasks; None while a server is being restarted."""
    try:
        return submitted.tasks()
    except Exception as error:  # gRPC, kubectl and JSON each raise their own while servers restart
        print(f"  {type(error).__name__}: {error}"[:200], flush=True)
        return None


def main() -> int:
    """Run until enough processes were killed, then run without kills; return 1 if there is a defect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, killed, number, wrong, ends = random.Random(options.seed), collections.Counter(), 0, 0, collections.Counter()
    store = bucket()
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary, "rows.csv")
        file.write_text("row\n" * 9)
        store.upload_file(str(file), "mlpipeline", KEY)
        while killed.total() < options.kills:
            number += 1
            folder = Path(temporary, str(number))
            folder.mkdir()
            submitted = submit(folder, number, 3)
            wrong_facts = disturb(submitted, rng, killed) or defects(submitted, store)
            ends["succeeded" if submitted.process.returncode == 0 else "failed"] += 1
            wrong += len(wrong_facts)
            print(
                f"run {number}: exit code {submitted.process.returncode}; {killed.total()} kills; {wrong_facts}",
                flush=True,
            )
        undisturbed = submit(folder, number, 0)
        last = [] if undisturbed.wait() == 0 else ["the run without kills failed"]
        wrong += len(last + defects(undisturbed, store))
    print(f"{killed.total()} kills in {number} runs ({dict(ends)}): {wrong} defects; {dict(killed)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
