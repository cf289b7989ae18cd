"""Kill random processes of the node while runs work: ``python -m tests.cluster.kills 200``, in the node's namespaces.

Victims are the processes of steps, drivers and Argo's executor in pods, the servers of KFP, Argo's controller, and the
programs of Kubernetes itself, but not the stores, which hold their data in memory. Three runs work at a time. A run may
fail, within a limit of time. It is a defect if it succeeds with other outputs than those of an undisturbed run, if a
failed step has a recorded output, if a pod stays, or if the next run without kills fails or takes over a half result.
With ``--record FILE`` a call that was ended goes on where it stopped.
"""

import argparse
import collections
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

from tests.cluster.conftest import bucket, set_values, wait_for
from tests.cluster.submission import Submission
from tests.cluster.test_faults import HOLD, processes
from tests.kfp_backend.runs import content

VICTIMS = {
    "step": "tests.toys:",
    "launcher": "/kfp-launcher/launch",
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
PAUSE = 5.0  # seconds between two kills, on average
RUNS = 3  # at a time


@dataclass
class Record:
    """Kills and ends of runs so far, in a file that each of them changes."""

    file: Path | None
    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    ends: collections.Counter[str] = field(default_factory=collections.Counter)
    defects: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path | None) -> Self:
        """Read the file, or return an empty record."""
        stored = json.loads(file.read_text()) if file and file.exists() else {}
        counters = (collections.Counter(stored.get(name, {})) for name in ("kills", "ends"))
        return cls(file, *counters, stored.get("defects", []))

    def write(self) -> None:
        """Replace the file."""
        if self.file:
            staged = self.file.with_suffix(".new")
            staged.write_text(json.dumps({"kills": self.kills, "ends": self.ends, "defects": self.defects}))
            staged.replace(self.file)

    def __str__(self) -> str:
        runs = f"{self.ends.total()} runs ({dict(self.ends)})"
        return f"{self.kills.total()} kills in {runs}: {len(self.defects)} defects; {dict(self.kills)}"


def kill_one(rng: random.Random) -> str | None:
    """Kill a process of a random kind that runs; return the kind."""
    name = rng.choice(list(VICTIMS))
    try:
        victims = [process for process in processes(VICTIMS[name]) if process.pid != 1 and not has_stores(process)]
        if not victims:
            return None
        rng.choice(victims).kill()
    except psutil.Error:
        return None
    return name


def has_stores(process: psutil.Process) -> bool:
    """Return whether a process of containerd has the stores' pod, which would end with it."""
    return any("moto.server" in child.cmdline() for child in process.children(recursive=True))


def submit(folder: Path, number: int, retries: int) -> Submission:
    """Submit a run with parameters that no other run has, so that it takes no result of another one."""
    words = set_values(f"data=minio://mlpipeline/{KEY}", f"seconds={5 + number / 1000}")

    def submitted() -> Submission | None:
        try:
            return Submission(folder, HOLD, *words, options=(f"retries={retries}",))
        except (AssertionError, RuntimeError, ValueError, KeyError):  # a server is being started again
            return None

    return wait_for(submitted, 300)


def disturb(submissions: list[Submission], rng: random.Random, record: Record) -> None:
    """Kill processes until the runs end, or until their limit of time."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and any(submitted.process.poll() is None for submitted in submissions):
        time.sleep(rng.expovariate(1 / PAUSE))
        if kind := kill_one(rng):
            record.kills[kind] += 1
            record.write()


def defects(submitted: Submission, store) -> list[str]:
    """Return what is wrong after the end of a run."""
    if submitted.process.poll() is None:
        submitted.process.kill()
        return [f"{submitted.run}: not ended after {LIMIT:.0f} s"]
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
    return [f"{submitted.run}: {fact}" for fact in wrong]


def tasks_of(submitted: Submission) -> dict | None:
    """Return the recorded tasks; None while a server is being restarted."""
    try:
        return submitted.tasks()
    except Exception as error:  # gRPC, kubectl and JSON each raise their own while servers restart
        print(f"  {type(error).__name__}: {error}"[:200], flush=True)
        return None


def rounds(kills: int, rng: random.Random, record: Record, folder: Path, store) -> None:
    """Start runs and kill processes until there were enough kills; then one run without kills."""
    number = 0

    def started(retries: int) -> Submission:
        nonlocal number
        number += 1
        place = folder / str(number)
        place.mkdir()
        return submit(place, record.ends.total() + number, retries)

    while record.kills.total() < kills:
        submissions = [started(retries=3) for _ in range(RUNS)]
        disturb(submissions, rng, record)
        for submitted in submissions:
            facts = defects(submitted, store)
            record.defects += facts
            record.ends["succeeded" if submitted.process.returncode == 0 else "failed"] += 1
            record.write()
            print(f"{submitted.run}: exit code {submitted.process.returncode}; {record}; {facts}", flush=True)
    last = started(retries=0)
    failed = [] if last.wait() == 0 else [f"the run without kills failed: {last.errors()}"]
    record.defects += [*failed, *defects(last, store)]
    record.write()


def main() -> int:
    """Run until enough processes were killed, then run without kills; return 1 if there is a defect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    record = Record.read(options.record)
    rng = random.Random(options.seed + record.kills.total())
    store = bucket()
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary, "rows.csv")
        file.write_text("row\n" * 9)
        store.upload_file(str(file), "mlpipeline", KEY)
        rounds(options.kills, rng, record, Path(temporary), store)
    print(record)
    return 1 if record.defects else 0


if __name__ == "__main__":
    sys.exit(main())
