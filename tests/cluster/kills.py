"""Kill random processes of the node while runs work: ``python -m tests.cluster.kills 200``, in the node's namespaces.

Victims are the processes of steps, drivers and Argo's executor in pods, the servers of KFP, Argo's controller, and the
programs of Kubernetes itself, but not the stores, which hold their data in memory. Four runs work at a time. A run may
fail, within a limit of time. It is a defect if it succeeds with other outputs than those of an undisturbed run, if a
failed step has a recorded output, if a pod stays, or if the next run without kills fails or takes over a half result.
With ``--record FILE`` a call that was ended goes on where it stopped.
"""

import argparse
import collections
import itertools
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from tests.cluster.conftest import bucket, set_values, wait_for
from tests.cluster.submission import Submission
from tests.cluster.test_faults import HOLD
from tests.kfp_backend.runs import content

VICTIMS = {  # by a part of the command line
    "step": "tests.toys:",
    "launcher": "/kfp-launcher/launch",
    "driver": "driver --type",
    "Argo's executor": "argoexec",
    "Argo's controller": "workflow-controller",
    "KFP's API server": " apiserver --config",
    "persistence agent": "persistence_agent",
    "kubelet": "/kubelet",
    "kube-apiserver": "/kube-apiserver",
    "kube-scheduler": "/kube-scheduler",
    "kube-controller-manager": "/kube-controller-manager",
    "etcd": "/etcd",
    "containerd": "containerd-shim",
}
IN_PODS = {"step", "launcher", "driver", "Argo's executor"}
SHARE = 0.7  # of the kills that are of processes in a run's pods, while there are any; else no run gets to its steps
KEY = "kills/rows.csv"
LIMIT = 900.0  # seconds of a run with kills
PAUSE = 3.5  # seconds between two kills, on average
RUNS = 4  # at a time


@dataclass
class Record:
    """Kills and ends of runs so far, in a file that each of them changes."""

    file: Path | None
    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    ends: collections.Counter[str] = field(default_factory=collections.Counter)
    defects: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def read(cls, file: Path | None) -> Self:
        """Read the file, or return an empty record."""
        stored = json.loads(file.read_text()) if file and file.exists() else {}
        counters = (collections.Counter(stored.get(name, {})) for name in ("kills", "ends"))
        return cls(file, *counters, stored.get("defects", []))

    def add(self, *, kill: str = "", end: str = "", defects: list[str] | None = None) -> None:
        """Add a kill, or the end of a run, and replace the file."""
        with self._lock:
            self.kills += collections.Counter([kill] if kill else [])
            self.ends += collections.Counter([end] if end else [])
            self.defects += defects or []
            if self.file:
                staged = self.file.with_suffix(".new")
                staged.write_text(json.dumps({"kills": self.kills, "ends": self.ends, "defects": self.defects}))
                staged.replace(self.file)

    def __str__(self) -> str:
        runs = f"{self.ends.total()} runs ({dict(self.ends)})"
        return f"{self.kills.total()} kills in {runs}: {len(self.defects)} defects; {dict(self.kills)}"


def kill_one(rng: random.Random) -> str:
    """Kill a process of a random kind of those that run; return the kind, or nothing if it had ended."""
    victims = collections.defaultdict(list)
    for process in psutil.process_iter():
        try:
            command = f" {' '.join(process.cmdline())}"
            for name, part in VICTIMS.items():
                if process.pid != 1 and part in command and not has_stores(process):
                    victims[name].append(process)
        except psutil.Error:
            continue
    try:
        in_pods = [name for name in victims if name in IN_PODS]
        name = rng.choice(in_pods if in_pods and rng.random() < SHARE else list(victims))
        rng.choice(victims[name]).kill()
    except (psutil.Error, IndexError):
        return ""
    return name


def has_stores(process: psutil.Process) -> bool:
    """Return whether a process of containerd has the stores' pod, which would end with it."""
    return "containerd-shim" in process.name() and any(
        "moto.server" in child.cmdline() for child in process.children(recursive=True)
    )


def tried(read: Callable[[], Any]) -> Any:
    """Return what a function returns; None if it raises, as gRPC, kubectl and JSON do while servers restart."""
    try:
        return read()
    except Exception as error:
        print(f"  {type(error).__name__}: {error}"[:200], flush=True)
        return None


def one_run(folder: Path, number: int, retries: int, store: Any) -> tuple[str, list[str]]:
    """Submit a run with parameters that no other run has, so that it takes no result of another one; return its end."""
    folder.mkdir()
    words = set_values(f"data=minio://mlpipeline/{KEY}", f"seconds={5 + number / 1000}")
    submitted = wait_for(lambda: tried(lambda: Submission(folder, HOLD, *words, options=(f"retries={retries}",))), 600)

    def phase() -> str | None:
        reached = submitted.workflow()["status"].get("phase")
        return reached if reached in ("Succeeded", "Failed", "Error") else None

    try:
        end = wait_for(lambda: tried(phase), LIMIT, pause=3)
    except TimeoutError:
        return "not ended", [f"{submitted.run}: not ended after {LIMIT:.0f} s"]
    finally:
        submitted.process.kill()  # it asks a server whose pod, and so its address, may be another one by now
    return end, defects(submitted, end, store)


def defects(submitted: Submission, end: str, store: Any) -> list[str]:
    """Return what is wrong after the end of a run."""
    wrong = []
    ended = ("Succeeded", "Failed")

    def has_ended() -> bool:
        return all(pod["status"]["phase"] in ended for pod in submitted.all_pods())

    try:
        wait_for(lambda: tried(has_ended), 300, pause=3)
    except TimeoutError:
        wrong.append("pods run after the end")
    try:
        tasks = wait_for(lambda: tried(submitted.tasks), 120, pause=3)
    except TimeoutError:  # it ended before its first task
        tasks = {}
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
        if not (task and task["state"] == "COMPLETE") and end == "Succeeded":
            wrong.append(f"succeeded, with {step}: {task}")
    return [f"{submitted.run}: {fact}" for fact in wrong]


def runs(kills: int, record: Record, folder: Path, numbers: Iterator[int], store: Any) -> None:
    """Run one run after the other until there were enough kills."""
    while record.kills.total() < kills:
        number = next(numbers)
        end, wrong = one_run(folder / str(number), number, 3, store)
        record.add(end=end, defects=wrong)
        print(f"run {number} {end} {wrong}: {record}", flush=True)


def main() -> int:
    """Run until enough processes were killed, then run without kills; return 1 if there is a defect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    record = Record.read(options.record)
    rng, numbers = random.Random(options.seed + record.kills.total()), itertools.count(record.ends.total() + 1)
    store = bucket()
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(RUNS) as threads:
        folder = Path(temporary)
        (folder / "rows.csv").write_text("row\n" * 9)
        store.upload_file(str(folder / "rows.csv"), "mlpipeline", KEY)
        working = [threads.submit(runs, options.kills, record, folder, numbers, store) for _ in range(RUNS)]
        while record.kills.total() < options.kills and not any(each.done() for each in working):
            time.sleep(rng.expovariate(1 / PAUSE))
            if kind := kill_one(rng):
                record.add(kill=kind)
        for each in working:
            each.result()
        number = next(numbers)
        end, wrong = one_run(folder / str(number), number, 0, store)
        record.add(defects=[*wrong, *([] if end == "Succeeded" else [f"the run without kills {end}"])])
    print(record)
    return 1 if record.defects else 0


if __name__ == "__main__":
    sys.exit(main())
