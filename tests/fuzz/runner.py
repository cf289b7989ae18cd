"""Run command lines in forks of a process that has imported TensorFlow, and score how each of them ends."""

import contextlib
import importlib
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe, reduction
from pathlib import Path
from types import SimpleNamespace

from tests.fuzz.byte_damage import Rename
from tests.fuzz.outcome import reports_failure, same_outcome
from tfopt.processes import call_limit

LIMIT_S = 120.0  # a call of a model in a new process has 60 s
MAX_BYTES = 3 << 30  # of resident memory; a process with TensorFlow has some 0.7 GiB
PARTS = ("received: ", "expected: ", "how to fix: ")
GOOD = ("three parts", "rightly accepted")
OF_USAGE = ("set/", "output/", "input/", "words/", "run file/")  # cases in which the words are damaged
USAGE, SILENT, BROKEN = 2, 98, 99  # exit codes
CANARY = "TFOPT_FUZZ_CANARY"  # names the file that hostile code in an input creates
VICTIM = "TFOPT_FUZZ_VICTIM"  # names a file outside of the inputs, which no command may remove, change or copy
SECRET = "a line that only the victim's file has"


@dataclass(frozen=True)
class Case:
    """A damaged input and the command that gets it.

    Attributes:
        name: ``input/damage/component``.
        words: The command line; ``{in}`` is the folder with the copies, ``{out}`` a new path, ``{originals}`` the rest.
        source: The original that is copied, under the same name.
        damage: Called with the copy.
        whole: Returns True if an independent reader of the format accepts the copy: then it is another valid input,
            such as one with a changed pixel.
    """

    name: str
    words: tuple[str, ...]
    source: str
    damage: Callable[[Path], None] = field(compare=False)
    whole: Callable[[Path], bool] | None = field(default=None, compare=False)

    @property
    def kind(self) -> str:
        """The row of the case in the table: the first part of its name."""
        return self.name.partition("/")[0].strip()


@dataclass(frozen=True)
class Result:
    """The end of one case.

    Attributes:
        case: The case.
        score: A member of `GOOD`, or the name of a defect.
        text: The last output of the command.
        seconds: Duration.
    """

    case: Case
    score: str
    text: str
    seconds: float


def nothing(_: Path) -> None:
    """Leave the copy as it is: the damage is in the words."""


def run_cases(cases: Sequence[Case], originals: Path, scratch: Path, jobs: int) -> Iterator[Result]:
    """Run cases, several at once, and yield their results as they end."""
    for module in ("tensorflow", "keras", "tf_keras", "h5py", "tfopt.cli.main", "apache_beam", "onnx"):
        importlib.import_module(module)
    waiting, running = list(reversed(cases)), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            case = waiting.pop()
            folder = scratch / f"{len(waiting):04d}"
            running[_fork(case, originals, folder)] = case, folder, time.monotonic()
        for pid, (case, folder, begun) in list(running.items()):
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            seconds = time.monotonic() - begun
            if not ended and seconds < LIMIT_S:
                continue
            _kill_group(pid)
            if not ended:
                os.wait4(pid, 0)
            del running[pid]
            code = os.waitstatus_to_exitcode(status) if ended else None
            score, text = _score(case, folder, code, usage.ru_maxrss << 10)
            yield Result(case, score, text, seconds)
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)


def _fork(case: Case, originals: Path, folder: Path) -> int:
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    try:
        os.setsid()
        inside = folder / "work"
        inside.mkdir(parents=True)
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1), os.dup2(log, 2), os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ[CANARY], victim = str(folder / "canary"), folder / "victim" / "own.txt"
        os.environ[VICTIM] = str(victim)
        victim.parent.mkdir()
        victim.write_text(f"{SECRET}\n" * 40)
        os.environ["TMPDIR"] = str(folder / "tmp")
        (folder / "tmp").mkdir()
        os.chdir(inside)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (2 * MAX_BYTES, 2 * MAX_BYTES))  # other processes need memory too
        _serve_children()
        call_limit.MINIMUM_S = 10.0  # of calls of a model in this process
        copy = _copy(originals, case.source, inside)
        if not _holds_in_fork(lambda: [case.damage(copy)]):
            os._exit(BROKEN)
        (folder / "placed").touch()
        words = [word.format(**{"in": inside, "out": inside / "out", "originals": originals}) for word in case.words]
        code = _run(words)
        if code == 0:
            code = _accept(case, originals, inside, folder, words)
        (folder / "ended").touch()
    except SystemExit as error:  # the usage of the command line
        code = error.code if isinstance(error.code, int) else BROKEN
    except BaseException:
        traceback.print_exc()
        code = BROKEN
    sys.stdout.flush()
    os._exit(code)


def _run(words: list[str]) -> int:
    """Run a command as the console script does: in a fork, whose sudden death is reported."""
    pid = os.getpid()
    code = importlib.import_module("tfopt.cli.main").supervised_main(words)
    if os.getpid() != pid:
        sys.stdout.flush()
        os._exit(code)
    return code


def _accept(case: Case, originals: Path, inside: Path, folder: Path, words: list[str]) -> int:
    """Return 0 if accepting was right: the intact input gives the same outputs, or the copy is another valid input."""
    if case.damage is nothing or reports_failure(inside / "out") or _is_whole(case, inside):
        return 0
    intact = folder / "intact"
    intact.mkdir()
    _copy(originals, case.source, intact)
    replaced = [word.replace(str(inside), str(intact)) for word in words]
    if isinstance(case.damage, Rename):
        replaced = [word.replace(str(intact / case.damage.name), str(intact / case.source)) for word in replaced]
    if _run(replaced) != 0:
        return SILENT
    return 0 if same_outcome(inside / "out", intact / "out") else SILENT


def _is_whole(case: Case, inside: Path) -> bool:
    return case.whole is not None and _holds_in_fork(lambda: case.whole(inside / case.source))


def _holds_in_fork(check: Callable[[], object]) -> bool:
    """Return whether a check is true, in a fork, since TensorFlow that has run in a process fails in its forks."""
    pid = os.fork()
    if not pid:
        holds = False
        with contextlib.suppress(Exception):
            holds = bool(check())
        os._exit(not holds)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _copy(originals: Path, source: str, folder: Path) -> Path:
    target = folder / source
    target.parent.mkdir(parents=True, exist_ok=True)
    original = originals / source
    (shutil.copytree if original.is_dir() else shutil.copy)(original, target)
    return target


def _score(case: Case, folder: Path, code: int | None, memory: int) -> tuple[str, str]:
    log = folder / "log"
    text = log.read_text(errors="replace") if log.is_file() else ""
    tail = text[-1500:]
    if (folder / "canary").exists():
        return "code ran", tail
    if not _is_kept(folder / "victim" / "own.txt"):
        return "removed or changed the victim's file", tail
    if copies := _copies(folder / "work", text):
        return "copied the victim's file", f"{copies}\n{tail}"
    if not (folder / "placed").exists() or (code == USAGE and not case.name.startswith(OF_USAGE)):
        return "broken case", tail
    if code is None:
        return "hang", tail
    if code < 0:
        return "crash", f"signal {-code}\n{tail}"
    if memory > MAX_BYTES:
        return "memory", f"{memory >> 20} MiB\n{tail}"
    left = [path.name for path in (folder / "work").iterdir() if ".partial" in path.name]
    expected = {"work", "log", "placed", "ended", "tmp", "intact", "canary", "victim"}
    left += [path.name for path in folder.iterdir() if path.name not in expected]
    if left:
        return "left behind", f"{left}\n{tail}"
    if code == SILENT:
        return "accepted in silence", tail
    if code == 0:
        return "rightly accepted", ""
    three = (code == 1 and all(part in text for part in PARTS)) or (code == USAGE and ": error:" in text)
    return ("three parts", text[-800:]) if three else ("raw exception", tail)


def _is_kept(victim: Path) -> bool:
    return victim.is_file() and victim.read_text() == f"{SECRET}\n" * 40


def _copies(folder: Path, log: str) -> list[str]:
    """Return what has the victim's text: the log, and files that are no links to it."""
    files = [path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode)]
    copies = [path.name for path in files if SECRET.encode() in path.read_bytes()]
    return copies + (["the log"] if SECRET in log else [])


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _serve_children() -> None:
    """Let `run_in_child` fork a process that has imported TensorFlow instead of starting one, which takes seconds.

    A fork of this process itself would not do, since TensorFlow does not work in forks of a process in which it ran.
    """
    from tfopt.processes import child_call, subprocess_call
    from tfopt.processes.parent_death import die_with_parent

    ours, theirs = Pipe()
    if os.fork():
        theirs.close()
        names = {name: getattr(subprocess, name) for name in ("DEVNULL", "STDOUT", "TimeoutExpired")}
        subprocess_call.subprocess = SimpleNamespace(  # type: ignore[attr-defined]
            Popen=lambda *args, **kwargs: _ForkedProcess(ours, *args, **kwargs), **names
        )
        return
    ours.close()
    try:
        while True:
            words, environment = theirs.recv()
            log = reduction.recv_handle(theirs)
            parent = os.getpid()
            if not (pid := os.fork()):
                os.environ.update(environment)
                os.dup2(log, 1), os.dup2(log, 2)
                try:
                    die_with_parent(parent)
                    child_call.perform(Path(words[-3]), Path(words[-2]))
                    os._exit(0)
                except SystemExit as error:
                    print(error.code if isinstance(error.code, str) else "", file=sys.stderr, flush=True)
                os._exit(1)
            os.close(log)
            theirs.send(pid)
            theirs.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    except EOFError:
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


class _ForkedProcess:
    """The part of ``subprocess.Popen`` that `run_in_child` uses."""

    def __init__(self, pipe, words, env, stdout, **_) -> None:
        self._pipe, self._status = pipe, None
        pipe.send(([str(word) for word in words], dict(env)))
        reduction.send_handle(pipe, stdout.fileno(), 0)
        self._pid = pipe.recv()

    def wait(self, limit_s: float | None = None) -> int:
        if self._status is None:
            if not self._pipe.poll(limit_s):
                raise subprocess.TimeoutExpired("", limit_s or 0)
            self._status = self._pipe.recv()
        return self._status

    def kill(self) -> None:
        if self._status is None:
            os.kill(self._pid, signal.SIGKILL)
