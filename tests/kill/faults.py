"""Let each call of the file system that a command makes fail, one at a time, with each error, and check how it ends."""

import contextlib
import errno
import fcntl
import io
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

from tests.trial_log import Trial
from tfopt.cli.main import main

ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EACCES", "ENOLCK", "EINVAL")
CALLS = (
    *(
        (os, name)
        for name in ("rename", "replace", "mkdir", "unlink", "fsync", "open", "link", "rmdir", "write", "sendfile")
    ),
    (fcntl, "flock"),
    (io, "open"),
    (io, "write"),
)
KINDS = {"replace": "rename", "sendfile": "write", "flock": "lock"}
PARTS = ("received: ", "expected: ", "how to fix: ")
GOOD = "all or none"
DAG = '''
from tests.kill.kill_dag import split
from tfopt.artifacts import Files
from tfopt.component import Input


def split_dag(steps, data: Input[Files]) -> None:
    """Split."""
    steps(split, data=data)
'''


class Fault:
    """Lets one call of a function fail, of those about paths below a folder; ``io.write`` is any open file's."""

    def __init__(self, module: object, name: str, number: int, at: int, folder: Path) -> None:
        """Take the place of a function whose n-th call is to fail."""
        self.count, self._at, self._number, self._folder = 0, at, number, folder
        self._is_write = (module, name) == (io, "write")
        self.name = "open" if self._is_write else name
        self._call = getattr(module, self.name)

    def __call__(self, file: object, *arguments: object, **options: object) -> object:
        """Call the function, or raise the error; of a call with a descriptor it has no name."""
        number = file if isinstance(file, int) else file.fileno() if hasattr(file, "fileno") else None
        path = Path(file).absolute() if number is None else Path(f"/proc/self/fd/{number}").readlink()
        if not path.is_relative_to(self._folder):
            return self._call(file, *arguments, **options)
        if not self._is_write:
            self._fail(None if number is not None else path)
            return self._call(file, *arguments, **options)
        opened = self._call(file, *arguments, **options)
        if opened.writable():
            write = opened.write

            def failing(data: object) -> object:
                self._fail(None)
                return write(data)

            opened.write = failing
        return opened

    def _fail(self, path: Path | None) -> None:
        self.count += 1
        if self.count == self._at:
            raise OSError(self._number, os.strerror(self._number), *([str(path)] if path else []))


def run_faults(
    folder: Path,
    engine: str = "",
    errors: Sequence[str] = ERRORS,
    calls: Sequence[tuple] = CALLS,
    tried: frozenset = frozenset(),
) -> Iterator[Trial]:
    """Run a command with two outputs once for each call that it makes and each error, and yield how it ended.

    Args:
        folder: For its files.
        engine: Run the command as a pipeline's step on this engine; empty for the component alone.
        errors: Names of errors.
        calls: The functions that fail, each by its module and name.
        tried: Names of faults that are left out.
    """
    dag, faulty, scratch = folder / "split_dag.py", folder / "faulty", folder / "tmp"
    dag.write_text(DAG)
    scratch.mkdir(exist_ok=True)
    outputs = [] if engine else [faulty / "a" / "first", faulty / "b" / "second"]
    words = ["run", str(dag), "--set", f"data={dag}", "--root", str(faulty / "root"), "--engine", engine]
    if not engine:
        words = [
            "tests.kill.kill_dag:split",
            "--data",
            str(dag),
            "--first",
            str(outputs[0]),
            "--second",
            str(outputs[1]),
        ]
    sleep = time.sleep
    for error in errors:
        for module, name in calls:
            for at in range(1, 1000):
                label = f"{engine or 'component'}: {module.__name__}.{name} {at} {error}"
                if label in tried:
                    continue
                shutil.rmtree(faulty, ignore_errors=True)
                faulty.mkdir()
                fault = Fault(module, name, getattr(errno, error), at, faulty)
                with (
                    mock.patch.object(module, fault.name, fault),
                    mock.patch.object(tempfile, "tempdir", str(scratch)),
                    mock.patch.object(time, "sleep", lambda seconds: sleep(min(seconds, 0.01))),
                ):
                    code, text = run_command(words)
                if fault.count < at:
                    break
                defects = list(_defects(code, text, outputs)) + _rerun(words, faulty)
                kind = f"fault {KINDS.get(name, name)} {error}"
                yield Trial(kind, label, "; ".join(defects)[:300] or GOOD, text if defects else "")


def run_command(words: Sequence[str]) -> tuple[int, str]:
    """Run a command in this process; return its exit code and what it wrote as errors."""
    output = io.StringIO()
    with contextlib.redirect_stderr(output), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(list(words))
        except Exception as error:
            return -1, f"Traceback: {type(error).__name__}: {error}"
    return code, output.getvalue()


def _defects(code: int, text: str, outputs: Sequence[Path]) -> Iterator[str]:
    if code not in (0, 1):
        yield f"exit code {code}"
    if code == 1 and not all(part in text for part in PARTS):
        yield "not in three parts"
    if "Traceback" in text:
        yield "a traceback"
    if len({output.exists() for output in outputs}) > 1:
        yield "one output of two"


def _rerun(words: Sequence[str], folder: Path) -> list[str]:
    """Run the command without a fault: what the fault left does not stop it, and is removed."""
    code, text = run_command(words)
    left = [path for pattern in (".*partial-*", ".*.commit-*") for path in folder.rglob(pattern)]
    defects = [] if code == 0 or "exists" in text else [f"the rerun ended with {code}: {text[-300:]}"]
    return defects + [f"left after the rerun: {path.name}" for path in left]
