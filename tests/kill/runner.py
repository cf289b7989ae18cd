"""Kill a command, check what it left, run it again, and check that its outputs are whole."""

import gc
import importlib
import json
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from tests.kill.cases import DAG, Case
from tests.kill.killed_command import HANGS, REACTS_S, Sign, adopt_orphans, fork_command, wait_for_orphans
from tfopt.artifacts import Model
from tfopt.component import components
from tfopt.dag.tracing import load
from tfopt.execution import code_digest

LAST = 12  # the last changes of a command, which place its outputs; enough kills cover them all for each command
FEWEST = 3  # kills of a slow component
FEWEST_OF_DAG = 8
NEW_PROCESSES = 50  # in one of so many kills the children of the command are new processes, which takes seconds
REFUSED = 1
TIMES = re.compile(r"\d{4}(_\d\d){5}|events\.out.*")  # in the names of TensorBoard logs


class KillRunner:
    """Runs each command once without a kill, then killed and again."""

    def __init__(self, cases: Sequence[Case], folder: Path) -> None:
        """Import what the forks share, without running it."""
        self._cases, self._folder, self._number = cases, folder, 0
        for module in ("tensorflow", "keras", "tf_keras", "h5py", "apache_beam", "onnx", "tfopt.cli.main"):
            importlib.import_module(module)
        if any(case.is_run and case.name != "process" for case in cases):
            importlib.import_module("tfopt.tfx.runner")
            importlib.import_module("tfx.orchestration.beam.beam_dag_runner")
            importlib.import_module("tfx.orchestration.local.local_dag_runner")
        if any(case.is_run for case in cases):
            for step in load(str(DAG)).steps.values():
                code_digest.describe(step.component)  # parses sources, whose imports the forks need not read again
        gc.freeze()  # otherwise the first garbage collection in each fork copies all imported objects
        adopt_orphans()
        self._counts: dict[str, tuple[int, int]] = {}
        self._names: dict[str, dict[str, set[str]]] = {}  # the files of whole outputs

    def plan(self, count: int, draw: Random) -> Iterator[tuple[Case, int]]:
        """Yield which command to kill before which of its changes: the last ones, and others at equal distances.

        Quick commands are killed more often than slow ones, and each of them some times. Half of the kills, or as many
        as reach each of the last changes of one of the commands, are made before those: outputs of all commands are
        placed by the same code.
        """
        changes, weights = [], []
        for case in self._cases:
            begun = time.monotonic()
            changes.append(self._changes(case)[0])
            weights.append(1 / max(1.0, time.monotonic() - begun) ** 2)
        fewest = [FEWEST_OF_DAG if case.is_run else FEWEST for case in self._cases]
        shares = [divmod(share, total) for share, total in zip(_shares(count, weights, fewest), changes, strict=True)]
        number = sum(rest for _, rest in shares)
        fraction = min(1.0, max(0.5, LAST / max(number, 1)))
        kills, latest, before = [], 0, 0
        for case, total, (rounds, rest) in zip(self._cases, changes, shares, strict=True):
            window = min(LAST, total)
            lasts = min(window, round(fraction * (before + rest)) - round(fraction * before))
            last = [total - (latest + index) % window for index in range(lasts)]
            before, latest = before + rest, latest + lasts
            others = rest - lasts
            spread = [1 + (2 * index + 1) * (total - window) // (2 * others) for index in range(others)]
            kills += [(case, kill_at) for kill_at in [*range(1, total + 1)] * rounds + last + spread]
        draw.shuffle(kills)
        yield from kills

    def kill(self, case: Case, kill_at: int) -> tuple[bool, list[str]]:
        """Kill a command before a change; return whether it was running then, and the defects."""
        folder = self._new_folder()
        words = [word.format(case=folder) for word in case.words]
        is_quick = self._number % NEW_PROCESSES > 0
        first = fork_command(words, folder, "killed", kill_at, forks_children=is_quick)
        twin = fork_command(words, folder, "twin") if case.is_run and kill_at % 5 == 0 else None
        code = first.wait()
        killed = code == -signal.SIGKILL
        defects = ["it does not end"] if code == HANGS else []
        defects += [f"the twin failed:\n{twin.log.read_text()[-2000:]}"] if twin and twin.wait() else []
        defects += [] if wait_for_orphans() else ["a process goes on"]
        defects += self._rerun(case, folder, words)
        return killed, defects

    def interrupt(self, case: Case, sign: Sign, moment: float) -> list[str]:
        """Send a signal to a command after a part of its changes, and return the defects."""
        folder = self._new_folder()
        words = [word.format(case=folder) for word in case.words]
        at = 1 + round(moment * (self._changes(case)[1] - 1))
        command = fork_command(words, folder, "interrupted", at, sign=sign, forks_children=True)
        code = command.wait()
        text = command.log.read_text()
        if command.sent is None:  # it made fewer changes than before, and ended
            return [*([f"it ended with {code}:\n{text[-2000:]}"] if code else []), *self._rerun(case, folder, words)]
        seconds = time.time() - command.sent
        defects = (
            [] if code == sign.code or (sign.code is None and code) else [f"it ended with {code}:\n{text[-2000:]}"]
        )
        defects += [f"it went on for {seconds:.0f} s"] if seconds > REACTS_S / 2 else []
        defects += [f"a traceback:\n{text[-2000:]}"] if "Traceback" in text else []
        defects += [] if wait_for_orphans(5) else ["a process goes on"]
        if sign.code is not None:
            defects += [f"left: {path.relative_to(folder)}" for path in _unfinished(folder)]
        return defects + self._rerun(case, folder, words)

    def _rerun(self, case: Case, folder: Path, words: Sequence[str]) -> list[str]:
        """Check what an ended command left, run it again, check its outputs, and remove the folder."""
        defects = list(self._damage(case, folder))
        placed = [name for name in case.outputs if _has_content(folder / name)]
        again = fork_command(words, folder, "again", forks_children=True)
        code, text = again.wait(), again.log.read_text()[-2000:]
        is_refused = code == REFUSED and len(placed) == len(case.outputs) > 0 and "exists" in text
        if code and not is_refused:
            defects.append(f"the rerun ended with {code}:\n{text}")
        else:
            defects += self._damage(case, folder, is_complete=True)
        defects += [] if wait_for_orphans() else ["a process goes on after the rerun"]
        defects += [f"left after the rerun: {path.relative_to(folder)}" for path in _unfinished(folder)]
        shutil.rmtree(folder)
        return defects

    def _changes(self, case: Case) -> tuple[int, int]:
        """Return the number of changes of a command, and of those before its end, for which it runs once."""
        if case.name not in self._counts:
            self._counts[case.name] = self._count_changes(case)
        return self._counts[case.name]

    def _count_changes(self, case: Case) -> tuple[int, int]:
        folder = self._new_folder()
        words = [word.format(case=folder) for word in case.words]
        whole = fork_command(words, folder, "whole", forks_children=True)
        if code := whole.wait():
            raise RuntimeError(f"{case.name} ended with {code}:\n{whole.log.read_text()[-4000:]}")
        wait_for_orphans()
        self._names[case.name] = {name: _files(folder / name) for name in case.outputs}
        shutil.rmtree(folder)
        return whole.count()

    def _damage(self, case: Case, folder: Path, *, is_complete: bool = False) -> Iterator[str]:
        """Yield each visible output that is not whole, and damaged metadata."""
        for name, files in self._names[case.name].items():
            if (is_complete or _has_content(folder / name)) and _files(folder / name) != files:
                yield f"{name} is not whole: {sorted(_files(folder / name) ^ files)}"
            elif _has_content(folder / name):
                type = components()[case.name].outputs[name].type
                try:
                    if not (
                        issubclass(type, Model) and type(folder / name).failure
                    ):  # as convert_tensorrt without a GPU
                        type.open(folder / name)
                except Exception as error:
                    yield f"{name} is damaged: {error}"
        if (file := folder / "root" / "metadata.sqlite").exists():
            with sqlite3.connect(file) as store:
                [[state]] = store.execute("pragma integrity_check")
                if state != "ok":
                    yield f"the metadata are damaged: {state}"
        if (served := folder / "served").is_dir():
            yield from _damaged_versions(served, is_complete)
        if is_complete and case.is_run:
            yield from _unrecorded(folder)

    def _new_folder(self) -> Path:
        self._number += 1
        folder = self._folder / f"{self._number:04d}"
        folder.mkdir(parents=True)
        return folder


def _shares(count: int, weights: Sequence[float], fewest: Sequence[int]) -> list[int]:
    """Divide a number of kills in proportion to weights; each command gets at least some, if there are enough."""
    if count < sum(fewest):
        weights, fewest = [1.0] * len(weights), [0] * len(weights)
    surplus = [max(0.0, count * weight / sum(weights) - least) for weight, least in zip(weights, fewest, strict=True)]
    scale = (count - sum(fewest)) / (sum(surplus) or 1)
    ends = [round(sum(surplus[:index]) * scale) for index in range(len(weights) + 1)]
    return [least + ends[index + 1] - ends[index] for index, least in enumerate(fewest)]


def _damaged_versions(served: Path, is_complete: bool) -> Iterator[str]:
    """Yield versions that are not whole; after the rerun the link has to lead to the newest one."""
    from tfopt.serving.layouts import Version

    versions = sorted((path for path in served.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    yield from (f"version {path.name} is empty" for path in versions if not any(path.iterdir()))
    if len({Version(path).digest for path in versions}) > 1:
        yield "versions of one model differ"
    if is_complete:
        link = served / "latest"
        if not versions:
            yield "there is no version"
        elif link.is_symlink() and link.resolve() != versions[-1].resolve():
            yield f"latest leads to {link.resolve().name}, and the newest version is {versions[-1].name}"
        elif not link.is_symlink() and (versions[-1] / "model_card.json").exists():
            yield "there is no link to the newest version"


def _unrecorded(folder: Path) -> Iterator[str]:
    """Yield what lies among the artifacts of a finished run and is not whole."""
    for output in folder.glob("root/artifacts/*/*/*"):
        if output.is_dir() and not output.name.startswith(".") and ".system" not in output.parts:
            for file in output.rglob("*.json"):
                try:
                    json.loads(file.read_text())
                except ValueError:
                    yield f"{file.relative_to(folder)} is half written"


def _unfinished(folder: Path) -> list[Path]:
    """Return what only a running command may have."""
    return [path for pattern in (".*partial-*", ".*.commit-*", "tmp/*") for path in folder.rglob(pattern)]


def _has_content(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def _files(path: Path) -> set[str]:
    return {TIMES.sub("TIME", str(file.relative_to(path))) for file in path.rglob("*") if file.is_file()}
