"""Run a month of scheduled retrainings with everything that goes wrong in one, and check what is served at the end.

    python benchmarks/month.py --folder month --json month.json
    python benchmarks/month.py --days 8

Each day a table of the flights of the last two weeks (2013, New York: they really drift) is exported, and a scheduler
starts ``tfopt run`` on it, again after a failure, then ``tfopt clean``. Some exports are broken, some runs are killed,
for two days the disk of the served versions is full, once two runs overlap, once the clock is three days behind. Two
versions are withdrawn, the second by a command that is killed; the export of the day after the first is the same.
The receiver of notifications is down when the first withdrawal should be reported. A run file with a goal that is
weaker than the policy of the destination is refused. Two versions are pushed as canaries: the verdict of a replay
withdraws the first and promotes the second. At the end the last two models are pushed to a bucket of a local S3
server, and the second is withdrawn and restored; digits, served in int8, get requests of another scale, which
`check_drift` and a recalibration repair; and what the served model saves is compared with the cost of all runs.

Needs Linux; the full disk needs root (a small tmpfs), the wrong clock Debian's package ``faketime``. Without them
these faults are left out, and the table says so. With ``--folder`` and ``--json`` an interrupted month continues after
its last whole day; it leaves the small disk mounted for that. To begin again in the same folder, first
``umount FOLDER/served`` and remove the file.
"""

import argparse
import contextlib
import importlib
import itertools
import json
import logging
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
from month_events import (
    POLICY,
    TFOPT,
    Receiver,
    call,
    price_of,
    recalibrate_after_drift,
    replay_canary,
    try_weaker_goals,
)
from stored_results import load_results, save_results

from tfopt.formatting import data_size
from tfopt.storage import remote_files

FLIGHTS = Path(__file__).parents[1] / "docs" / "flights"
NOTIFY = ["notify", "-f", "retrain.yaml"]
FIRST = pd.Timestamp("2013-06-01")
WINDOW = 14  # days of flights in an export
SHORT = 24  # days, up to which the faults have fixed days
KEEP = 3  # versions, and executions of each step
ATTEMPTS = 4  # starts of a run by the scheduler
LEAST = 11  # days that have room for every fault but "wrong labels"
HISTORY = 5  # from this day on there is a history, which a model with wrong labels is compared with
DISK = 64 << 20  # bytes of the disk of the served versions
ROOM = 200 << 10  # bytes that are free on it while it is full
GROWTH = 1.5  # of anything on the disk, in the second half of the month, or after a canary
BROKEN = {
    "missing": "5 % of the temperatures are missing",
    "class": "3 % of the labels are of a new class",
    "empty": "no flights",
    "labels": "labels of other flights",
}
PRICE, RATE = 0.40, 2e6  # of a node for an hour; predictions a second at the busiest time
# What has to agree in the replay of each canary, and the limit of other answers; models of other days differ.
CANARIES = (("values", "2%"), ("classes", "20%"))
RUN_FILE = f"""\
pipeline: retrain
notify:
  url: ${{RECEIVER}}
  stale_days: 14
root: runs/flights
values:
  data: export.csv
  module: model.py
  missing: error
  epochs: 4
  warm_start: true
  seconds: 0.3
  batch_sizes: ["32"]
  layout: plain
  destination: served
  keep: {KEEP}
  goals:
    - {{metric: accuracy, max_degradation: 2%}}
    - {{metric: auc, max_regression: 10%}}
"""


@dataclass
class Day:
    """A day: what was to happen, and what happened.

    Attributes:
        number: From 1.
        export: ``good``, ``duplicate`` (the export of the day before), or a key of `BROKEN`.
        faults: ``full``, ``overlap``, ``clock``, ``kill run``, ``kill step``; after the run ``withdraw``, and ``kill
            withdraw``, which is repeated; ``receiver`` (down on that day), ``policy`` (a weaker run file is tried).
        attempts: How each attempt of the scheduler ended.
        seconds: Time of all of them.
        version: The pushed version; None if nothing was pushed.
        format: Its model.
        auc: The area under its ROC curve.
        reason: Why it was pushed or not.
        done: True if the last attempt decided about a push.
        whole: Result of loading and verifying the pushed version.
        withdrawn: The version that was withdrawn.
        canary: What became of the version that was pushed as a canary.
        broken: What was not as promised; empty if nothing.
        cleaned: Executions that ``tfopt clean`` removed.
        bytes: Of the folder of runs, of the metadata in it, of the served folder, and of its run history.
    """

    number: int
    export: str
    faults: list[str]
    attempts: list[str] = field(default_factory=list)
    seconds: float = 0.0
    version: int | None = None
    format: str = ""
    auc: float | None = None
    reason: str = ""
    done: bool = False
    whole: str = ""
    withdrawn: int | None = None
    canary: str = ""
    broken: str = ""
    cleaned: int = 0
    bytes: dict[str, int] = field(default_factory=dict)


def main() -> int:
    """Run the days that are left, print the table, and return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30, help=f"at least {LEAST} (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the days on which things go wrong")
    parser.add_argument("--engine", choices=("beam", "local", "process"), default="beam")
    parser.add_argument("--folder", type=Path, help="where the month is run (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="file with the days, from which an interrupted month continues")
    options = parser.parse_args()
    if options.days < LEAST:
        parser.error(f"--days {options.days}: at least {LEAST}")
    if options.json and not options.folder:
        parser.error("--json needs --folder, in which the month continues")
    settings = {"days": options.days, "seed": options.seed, "engine": options.engine}
    results = load_results(options.json, settings, "ended")
    with tempfile.TemporaryDirectory(prefix="tfopt-month-") as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        canaries = [day["canary"] for day in results["ended"] if day["canary"]]
        month = Month(folder, options.engine, settings, canaries)
        with month.prepared(), Watch(folder / "served") as watch:
            for day in plan_month(options.days, options.seed)[len(results["ended"]) :]:
                month.run(day)
                results["ended"].append(asdict(day) | {"watch": watch.take()})
                save_results(options.json, results)
                print(progress(day), flush=True)
        days = [Day(**{key: value for key, value in one.items() if key != "watch"}) for one in results["ended"]]
        print_table(days, month.missing)
        broken = broken_promises(days, [one["watch"] for one in results["ended"]])
        if has_two := len(month.decided_models()) > 1:
            broken += month.roll_back_in_a_store()
        broken += month.undelivered({day.withdrawn for day in days if day.withdrawn})
        broken += recalibrate_after_drift(folder / "digits", options.engine)
        print(price_of(folder, PRICE, RATE, sum(day.seconds for day in days) / 3600))
        month.remove_disk()
    for line in broken:
        print(f"BROKEN: {line}")
    if not broken:
        print(
            "every promise held"
            if has_two
            else "every promise held; the bucket was left out, as no two models were pushed"
        )
    return 1 if broken else 0


def plan_month(count: int, seed: int) -> list[Day]:
    """Return the days with their exports and faults; the same for the same arguments."""
    rng = random.Random(seed)
    days = [Day(number, "good", []) for number in range(1, count + 1)]
    if count < SHORT:
        exports: dict[int, str] = {2: "missing", 4: "class", 6: "empty", 8: "duplicate"}
        faults = {3: ["full"], 4: ["full"], 5: ["overlap", "kill withdraw"], 1: ["kill run"]}
        faults |= {7: ["clock", "kill step", "withdraw", "receiver"], 2: ["policy"]}
    else:
        kinds = ["missing", "class", "empty", "duplicate", "labels"]
        bad = rng.sample(range(HISTORY, count), len(kinds))
        while bad[kinds.index("duplicate")] - 1 in bad:  # the version of that day is withdrawn
            bad = rng.sample(range(HISTORY, count), len(kinds))
        exports = dict(zip(bad, kinds, strict=True))
        near = {number - ahead for number in exports for ahead in range(2)} | {bad[kinds.index("duplicate")] - 2}
        good = [day.number for day in days[HISTORY:-1] if day.number not in near]
        full, overlap, clock = rng.sample(good[::2], 3)
        faults = {full: ["full"], full + 1: ["full"], overlap: ["overlap"], clock: ["clock"]}
        free = [day.number for day in days if day.number not in {*exports, *faults}]
        for number, kind in zip(
            rng.sample(free, len(free) // 2), itertools.cycle(("kill run", "kill step")), strict=False
        ):
            faults[number] = [kind]
        faults.setdefault(next(day for day, kind in exports.items() if kind == "duplicate") - 1, []).extend(
            ("withdraw", "receiver")
        )
        late = [number for number in free if number > count // 2 and number not in faults]
        faults |= {late[0]: ["kill withdraw"], late[1]: ["policy"]}
    return [Day(day.number, exports.get(day.number, "good"), faults.get(day.number, [])) for day in days]


def can_be_canary(day: Day) -> bool:
    """Return True for a late day on which nothing but a killed run hinders a push."""
    return day.number > LEAST - 3 and day.export == "good" and set(day.faults) <= {"kill run", "kill step"}


class Month:
    """The machine on which the runs are scheduled."""

    def __init__(self, folder: Path, engine: str, settings: dict[str, Any], canaries: list[str]) -> None:
        """Remember the folder, in which an earlier process may have run some of the days."""
        self.folder, self.engine = folder, engine
        self.served, self.runs = folder / "served", folder / "runs"
        self._seed = settings["seed"]
        self._rng = random.Random(self._seed)
        self._seconds = 60.0  # of the last run that was not killed
        self._killed = ""
        self.missing: list[str] = []
        self.canaries = canaries  # what became of those of earlier days
        self.receiver = Receiver()
        self._environment = os.environ | {"RECEIVER": self.receiver.url}
        self.decided = folder / "decided"  # for each pushed version, outputs of select_model, which are cleaned up

    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
        """Write the run file, and mount the small disk unless an interrupted month left it."""
        self.served.mkdir(parents=True, exist_ok=True)
        (self.folder / "retrain.yaml").write_text(RUN_FILE)
        shutil.copy(FLIGHTS / "model.py", self.folder)
        if not self.served.is_mount():
            mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(self.served)]
            if subprocess.run(mount, check=False, capture_output=True).returncode:
                self.missing.append("full: a file system cannot be mounted here")
        (self.served / "policy.yaml").write_text(POLICY)
        if not shutil.which("faketime"):
            self.missing.append("clock: faketime is not installed")
        sys.path.insert(0, str(FLIGHTS))
        data = importlib.import_module("data")
        flights, weather = data.tables()
        dates = pd.to_datetime(flights[["year", "month", "day"]])
        near = (dates >= FIRST - pd.Timedelta(days=WINDOW)) & (dates < FIRST + pd.Timedelta(days=400))
        self._table = data.rows(flights[near], weather)
        self._date = (self._table["day"] * 366).round().astype(int)
        yield

    def remove_disk(self) -> None:
        """Unmount the small disk."""
        if self.served.is_mount():
            subprocess.run(["umount", "-l", str(self.served)], check=True)

    def run(self, day: Day) -> None:
        """Run a day: export, retraining until it succeeds or the scheduler gives up, verification, clean-up."""
        self._export(day)
        self._rng = random.Random(f"{self._seed} {day.number}")  # also if the month continues in a new process
        begun, before = time.monotonic(), self._newest()
        if "policy" in day.faults:
            day.broken = try_weaker_goals(self.folder, self._environment)
        if "full" in day.faults:
            self._fill()
        with self.receiver.down() if "receiver" in day.faults else contextlib.nullcontext():
            try:
                self._retrain(day)
            finally:
                (self.served / ".fill").unlink(missing_ok=True)
            self._finish(day, begun, before)

    def _finish(self, day: Day, begun: float, before: int | None) -> None:
        """Decide about a canary, verify what was pushed, withdraw it if it is so planned, and clean up."""
        if canary := self._canary():
            self._decide(day, canary, before)
        day.seconds = time.monotonic() - begun
        newest = self._newest()
        if newest and newest != before:
            day.version, day.whole = newest, self._verify(newest)
        if kinds := [fault for fault in day.faults if fault.endswith("withdraw")]:
            self._withdraw(day, kill=kinds == ["kill withdraw"])
        if "receiver" in day.faults and call(self.folder, *NOTIFY, environment=self._environment).returncode != 1:
            day.broken = day.broken or "a notification was sent to a receiver that is down"
        day.cleaned = self._clean()
        stores = self.runs.rglob("metadata.sqlite"), self.runs.rglob("executions/*/*.json")
        day.bytes = {
            "runs": tree_size(self.runs),
            "metadata": sum(file.stat().st_size for files in stores for file in files),
            "served": tree_size(self.served),
            "history": tree_size(self.served / "history"),
        }

    def _canary(self) -> Path | None:
        """Return the folder of the canary; None if there is none."""
        folders = (self.served / "canary" / "served").glob("*")
        return next((folder for folder in folders if folder.name.isdecimal()), None)

    def _is_canary(self, day: Day) -> bool:
        """Return True if what a day pushes has to be a canary."""
        return can_be_canary(day) and len(self.canaries) < len(CANARIES)

    def _decide(self, day: Day, canary: Path, before: int | None) -> None:
        """Replay requests of the day on the canary, and record whether the served version is what the verdict says."""
        rows = pd.read_csv(self.folder / "export.csv")
        day.canary = replay_canary(self.folder, canary, self.served / str(before), rows, *CANARIES[len(self.canaries)])
        self.canaries.append(day.canary)
        expected = int(canary.name) if day.canary == "promoted" else before
        if self._newest() != expected or self._canary():
            day.broken = f"the canary {canary.name} was {day.canary}, and version {self._newest()} is served"

    def undelivered(self, withdrawn: set[int]) -> Iterator[str]:
        """Send the last notifications; yield a line for each withdrawal that was not reported."""
        if ended := call(self.folder, *NOTIFY, environment=self._environment).returncode:
            yield f"tfopt notify ended with {ended} at the end"
        reported = {event.get("version") for event in self.receiver.received.values() if event["kind"] == "withdrawn"}
        for version in sorted(withdrawn - {int(number) for number in reported if number}):
            yield f"the withdrawal of version {version} was not reported"
        kinds = [event["kind"] for event in self.receiver.received.values()]
        print(f"notifications: { {kind: kinds.count(kind) for kind in sorted(set(kinds))} }")
        self.receiver.close()

    def _export(self, day: Day) -> None:
        """Write the flights of two weeks until this day, broken if it is so planned."""
        if day.export == "duplicate":
            return
        rng = np.random.default_rng(day.number)
        last = FIRST.dayofyear + day.number - 1
        table = self._table[(self._date > last - WINDOW) & (self._date <= last)].copy()
        if day.export == "missing":
            table.loc[rng.random(len(table)) < 0.05, "temp"] = np.nan
        elif day.export == "class":
            table.loc[rng.random(len(table)) < 0.03, "label"] = 2
        elif day.export == "empty":
            table = table[:0]
        elif day.export == "labels":
            table["label"] = rng.permutation(table["label"])
        table.to_csv(self.folder / "export.csv", index=False, float_format="%.6g")

    def _retrain(self, day: Day) -> None:
        """Start the run until it succeeds; an export that is refused is not tried again and again."""
        for attempt in range(ATTEMPTS):
            kill = next((fault for fault in day.faults if fault.startswith("kill")), None) if not attempt else None
            self._killed = ""
            other = self._start(day) if "overlap" in day.faults and not attempt else None
            begun = time.monotonic()
            ended = self._wait(self._start(day), kill)
            if other:
                day.attempts.append(outcome(self._wait(other, None)))
            day.attempts.append(f"{outcome(ended)}{self._killed}")
            if ended.returncode == 0:
                self._seconds = time.monotonic() - begun
                self._read_decision(day, json.loads(ended.stdout))
                return
            day.reason = cause(ended.stderr)
            if ended.returncode == 1 and attempt:
                return  # the same error twice: the scheduler reports it

    def _start(self, day: Day) -> subprocess.Popen[str]:
        words = [*TFOPT, "run", "-f", "retrain.yaml", "--engine", self.engine, "--json"]
        if self._is_canary(day):
            words += ["--set", "canary=10%"]
        environment = dict(self._environment)
        if "clock" in day.faults and shutil.which("faketime"):
            words = ["faketime", "-f", "-3d", *words]
            environment |= {"NO_FAKE_STAT": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(words, cwd=self.folder, env=environment, **pipes)  # type: ignore[call-overload, no-any-return]

    def _wait(self, process: subprocess.Popen[str], kill: str | None) -> subprocess.CompletedProcess[str]:
        """Wait for the end of a run, and kill it, or a process of a step, at a random moment of its work."""
        killer = threading.Timer(self._rng.uniform(0.1, 0.95) * self._seconds, self._kill, (process.pid, kill))
        if kill:
            killer.start()
        output, error = process.communicate()
        killer.cancel()
        return subprocess.CompletedProcess(process.args, process.returncode, output, error)

    def _kill(self, run: int, kind: str | None) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(run)
            below = process.children(recursive=True)
            victim = self._rng.choice(below) if kind == "kill step" and below else process
            words = victim.cmdline()
            victim.send_signal(signal.SIGKILL)
            name = "the run" if victim is process else next((word for word in words if "tfopt." in word), words[0])
            self._killed = f" (killed: {name})"

    def _read_decision(self, day: Day, steps: dict[str, Any]) -> None:
        pushed = json.loads(Path(steps["push_model"]["outputs"]["pushed"], "pushed.json").read_text())
        decision = json.loads(Path(steps["select_model"]["outputs"]["decision"], "decision.json").read_text())
        chosen = next(model for model in decision["models"] if model["name"] == decision["selected"])
        day.format, day.auc = decision["selected"], chosen["metrics"].get("auc")
        day.reason, day.done = pushed["reason"], True
        if pushed["version"] and decision["blessed"]:
            for name in ("selected", "blessing"):
                target = self.decided / str(pushed["version"]) / name
                shutil.copytree(steps["select_model"]["outputs"][name], target, dirs_exist_ok=True)

    def decided_models(self) -> list[Path]:
        """List the folders of blessed models and their blessings, in the order of the versions."""
        return sorted(self.decided.glob("*"), key=lambda folder: int(folder.name))

    def _verify(self, version: int) -> str:
        """Return ``whole`` if the version has its manifest's files and its server's loader loads it, else why not."""
        with tempfile.TemporaryDirectory(prefix="tfopt-month-") as temporary:
            words = ["validate_serving", "--model", str(self.served / str(version)), "--verify", "--seconds", "0.1"]
            words += ["--layout", "plain", "--infra-blessing", f"{temporary}/blessing"]
            ended = subprocess.run([*TFOPT, *words], check=False, capture_output=True, text=True)
            if ended.returncode:
                return cause(ended.stderr)
            blessed = Path(temporary, "blessing", "INFRA_BLESSED").is_file()
            return "whole" if blessed else Path(temporary, "blessing", "infra_blessing.json").read_text()

    def _withdraw(self, day: Day, *, kill: bool) -> None:
        """Withdraw the newest version, and record what is then not as promised."""
        newest, words = self._newest(), [*TFOPT, "withdraw", "served", "--reason", f"day {day.number}"]
        if kill:
            begun = time.monotonic()
            subprocess.run([*TFOPT, "history", "served"], check=True, cwd=self.folder, capture_output=True)
            process = subprocess.Popen(words, cwd=self.folder, stdout=subprocess.DEVNULL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self._rng.uniform(0.5, 1.5) * (time.monotonic() - begun))
            process.kill()
            process.wait()
        subprocess.run([*words[:-2], str(newest), *words[-2:]], check=True, cwd=self.folder, capture_output=True)
        day.withdrawn = newest
        manifests = sorted(str(file.relative_to(self.served)) for file in (self.served / "versions").glob("*.sha256"))
        check = subprocess.run(["sha256sum", "--check", *manifests], cwd=self.served, check=False, capture_output=True)
        if self._newest() == newest or (self.served / "latest").readlink() != Path(str(self._newest())):
            day.broken = f"version {newest} is served, although it was withdrawn"
        elif check.returncode:
            day.broken = "a manifest does not fit"

    def roll_back_in_a_store(self) -> list[str]:
        """Push the last two models to a bucket of a local S3 server, withdraw the second, push it again, restore it.

        Return a line for each promise that was not held.
        """
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        address = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
        environment = os.environ | keys | {"AWS_ENDPOINT_URL": address}
        try:
            with tempfile.TemporaryDirectory(prefix="tfopt-month-") as temporary:
                return list(roll_back(self.decided_models()[-2:], Path(temporary), environment))
        finally:
            server.stop()

    def _clean(self) -> int:
        words = ["clean", "runs", "--keep", str(KEEP), "--yes", "--json"]
        ended = subprocess.run([*TFOPT, *words], check=True, cwd=self.folder, capture_output=True, text=True)
        return sum(entry.get("executions", 0) for entry in json.loads(ended.stdout))

    def _fill(self) -> None:
        """Leave too little room for a version on the disk of the served folder."""
        if self.served.is_mount():
            room = shutil.disk_usage(self.served).free - ROOM
            (self.served / ".fill").write_bytes(bytes(max(room, 0)))

    def _newest(self) -> int | None:
        return max((int(path.name) for path in self.served.iterdir() if path.name.isdecimal()), default=None)


class Watch:
    """A reader that looks at the served folder all the time, as a server does: the link, and the files behind it."""

    def __init__(self, served: Path) -> None:
        """Watch a folder, in which there may be versions already."""
        self._latest = served / "latest"
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._seen = self._latest.exists()
        self._looks, self._lacks = 0, 0

    def __enter__(self) -> "Watch":
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ended.set()
        self._thread.join()

    def take(self) -> dict[str, int]:
        """Return the number of looks, and of those that found no version, since the last call."""
        with self._lock:
            counts = {"looks": self._looks, "lacks": self._lacks}
            self._looks = self._lacks = 0
            return counts

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            is_there = self._has_version()
            with self._lock:
                self._seen |= is_there
                self._looks += self._seen
                self._lacks += self._seen and not is_there

    def _has_version(self) -> bool:
        """Open the newest version by its link, which may be replaced while its files are listed."""
        for _ in range(2):
            with contextlib.suppress(OSError):
                version = self._latest.resolve(strict=True)
                if any(file.stat().st_size for file in version.rglob("*") if file.is_file()):
                    return True
        return False


def roll_back(decided: Sequence[Path], folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Withdraw and restore the second of two models in an object store; yield a line for each broken promise."""
    import fsspec

    os.environ.update(environment)  # of the listings below
    fsspec.filesystem("s3").mkdir("month")
    served = "s3://month/served"

    def push(number: int) -> int | None:
        target = folder / f"pushed {len(list(folder.iterdir()))}"
        words = ["push_model", "--destination", served, "--layout", "plain", "--pushed", str(target)]
        words += ["--model", str(decided[number] / "selected"), "--blessing", str(decided[number] / "blessing")]
        subprocess.run([*TFOPT, *words], check=True, env=environment, capture_output=True)
        version: int | None = json.loads((target / "pushed.json").read_text())["version"]
        return version

    def served_versions() -> set[str]:
        return {name for name in remote_files.list_names(served) if name.isdecimal()}

    def change(command: str) -> None:
        words = [*TFOPT, command, served, "--reason", "the month"]
        subprocess.run(words, check=True, env=environment, capture_output=True)

    if (push(0), push(1)) != (1, 2):
        yield "object store: two models are not versions 1 and 2"
    change("withdraw")
    if served_versions() != {"1"}:
        yield f"object store: served after the withdrawal: {sorted(served_versions())}"
    if push(1) is not None:
        yield "object store: the withdrawn model was pushed again"
    change("restore")
    if served_versions() != {"1", "2"} or push(1) != 2:
        yield f"object store: served after the restoration: {sorted(served_versions())}"


def tree_size(folder: Path) -> int:
    """Return the bytes on the disk of all files below a folder; those with several links count once."""
    sizes = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def outcome(ended: subprocess.CompletedProcess[str]) -> str:
    """Describe the end of an attempt."""
    return "ok" if not ended.returncode else "killed" if ended.returncode < 0 else f"exit code {ended.returncode}"


def cause(error: str) -> str:
    """Return what the error of a command received."""
    lines = [line.removeprefix("received: ") for line in error.splitlines() if line.startswith("received: ")]
    return lines[-1] if lines else (error.strip().splitlines() or ["killed"])[-1]


def broken_promises(days: Sequence[Day], watched: Sequence[dict[str, int]]) -> list[str]:
    """Return a line for each promise that the month did not hold."""
    lines = [f"day {day.number}: version {day.version} is not whole: {day.whole}" for day in days if is_damaged(day)]
    lines += [
        f"day {day.number}: the served folder lacked a version in {count['lacks']} of {count['looks']} looks"
        for day, count in zip(days, watched, strict=True)
        if count["lacks"]
    ]
    lines += [f"day {day.number}: {day.export}, and pushed" for day in days if is_bad(day) and day.version]
    lines += [f"day {day.number}: a good day was lost: {day.reason}" for day in days if is_lost(day)]
    lines += [f"day {day.number}: {day.broken}" for day in days if day.broken]
    pushed = [day.version for day in days if day.version]
    lines += [f"version {number} was pushed twice" for number in sorted({n for n in pushed if pushed.count(n) > 1})]
    for before, day in itertools.pairwise(days):
        if before.withdrawn and day.export == "duplicate" and day.version:
            lines.append(f"day {day.number}: the withdrawn version {before.withdrawn} was pushed again")
    return lines + growth(days)


def growth(days: Sequence[Day]) -> list[str]:
    """Return a line for each folder that still grew in the second half of the month, or after the first canary.

    Until then there are as many results as remain, small and large versions, a withdrawn one, and those of canaries.
    """
    decided = [day.number for day in days if day.done]
    canaries = [day.number for day in days if day.canary]
    if len(decided) <= KEEP:
        return []
    lines, first = list[str](), max(decided[KEEP - 1], len(days) // 2, *canaries[:1])
    for name in ("runs", "metadata", "served"):
        sizes = [day.bytes[name] for day in days]
        before, after = max(sizes[:first]), max(sizes[first:], default=0)
        if after > GROWTH * before:
            lines.append(f"{name} grew from {data_size(before)} to {data_size(after)}")
    return lines


def is_damaged(day: Day) -> bool:
    """Return True if a version was pushed that is not whole."""
    return day.version is not None and day.whole != "whole"


def is_bad(day: Day) -> bool:
    """Return True if nothing may be pushed: the export is broken, or the disk is full."""
    return day.export in BROKEN or "full" in day.faults


def is_lost(day: Day) -> bool:
    """Return True if no decision was made about a day with a good export and a destination with room.

    A model that misses a goal is not lost: the decision was made, on good data. What a broken day could block it with,
    the run history and the model of a warm start, comes from pushed versions only, and a broken day must not push any.
    """
    return not is_bad(day) and not day.done


def progress(day: Day) -> str:
    """Describe a day in a line."""
    what = f"version {day.version}, {day.format}" if day.version else "not pushed"
    return f"day {day.number}: {', '.join([day.export, *day.faults])}: {what}: {day.reason} ({day.seconds:.0f} s)"


def print_table(days: Sequence[Day], missing: Sequence[str]) -> None:
    """Print a row for each day, and sums."""
    print("\n| day | export, faults | attempts | pushed | AUC | why | runs | metadata | served |")
    print("|--:|---|---|---|--:|---|--:|--:|--:|")
    for day in days:
        pushed = f"{day.version}: {day.format}" if day.version else "-"
        pushed += f", {day.withdrawn} withdrawn" if day.withdrawn else ""
        pushed += f", canary {day.canary}" if day.canary else ""
        auc = "" if day.auc is None else f"{day.auc:.3f}"
        sizes = " | ".join(data_size(day.bytes[name]) for name in ("runs", "metadata", "served"))
        what, attempts = ", ".join([day.export, *day.faults]), ", ".join(day.attempts)
        print(f"| {day.number} | {what} | {attempts} | {pushed} | {auc} | {day.reason} | {sizes} |")
    pushes = sum(bool(day.version) for day in days)
    seconds = [day.seconds for day in days if day.attempts == ["ok"]]
    print(f"\n{len(days)} days, {pushes} pushed versions, {sum(day.cleaned for day in days)} old executions removed,")
    print(f"{sum(day.seconds for day in days) / 60:.0f} min; a run takes {statistics.median(seconds):.0f} s (median).")
    for line in missing:
        print(f"left out: {line}")


if __name__ == "__main__":
    sys.exit(main())
