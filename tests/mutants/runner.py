"""Apply each mutant to its own copy of the repository, run its tests there, and confirm what they found."""

import compileall
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tests.mutants.mutant import Mutant
from tests.mutants.pytest_run import check_import, copy_tree, create_interpreter, run_tests

State = Literal["found", "survived", "not counted"]
# Limits without a mutant, as multiples of the limit with one: for its tests, and for the tests that found all mutants.
CONFIRMATION, ALL_CONFIRMATIONS = 10, 20


@dataclass(frozen=True)
class Result:
    """The result of one mutant.

    Attributes:
        mutant: The mutant.
        state: ``not counted`` if its tests fail without it too.
        by: The test that failed, or how pytest ended.
        seconds: Duration of its tests.
        is_test: True if a test failed; False if pytest ended in another way, for example by the time limit.
    """

    mutant: Mutant
    state: State
    by: str = ""
    seconds: float = 0.0
    is_test: bool = True

    def describe(self) -> str:
        """Return the result in words."""
        text = {
            "found": f"found by {self.by} in {self.seconds:.0f} s",
            "survived": f"SURVIVED {', '.join(self.mutant.tests)} in {self.seconds:.0f} s",
            "not counted": f"NOT COUNTED, because without it too: {self.by}",
        }[self.state]
        return f"{self.mutant}: {text}"


class MutantRunner:
    """Runs mutants in copies of a repository below a temporary folder."""

    def __init__(self, root: Path, folder: Path, limit_s: float) -> None:
        """Copy and compile the repository.

        Args:
            root: The repository.
            folder: An empty folder for the copies.
            limit_s: Time after which a mutant counts as found, because it made its tests hang.

        Raises:
            RuntimeError: If tests would not import the copies.
        """
        self._original, self._folder, self._limit_s = folder / "original", folder, limit_s
        self._stop = threading.Event()
        copy_tree(root, self._original)
        compileall.compile_dir(self._original, quiet=2, workers=1)
        self._python = create_interpreter(self._original)
        check_import(self._python, self._original, folder / "scratch")

    def run(self, mutants: Sequence[Mutant], workers: int) -> Iterator[Result]:
        """Yield the result of each mutant as soon as it is known. If the caller stops, all processes are ended."""
        executor = ThreadPoolExecutor(workers)
        try:
            tasks = [executor.submit(self._run_one, number, mutant) for number, mutant in enumerate(mutants)]
            for task in as_completed(tasks):
                yield task.result()
        finally:
            self._stop.set()
            executor.shutdown(cancel_futures=True)
            self._stop.clear()

    def confirm(self, results: Sequence[Result]) -> list[Result]:
        """Run what found a mutant without it, and return the results without those that fail all the same."""
        tests = tuple(sorted({result.by for result in results if result.state == "found" and result.is_test}))
        failed: set[str] = set()
        if tests:
            limit_s = ALL_CONFIRMATIONS * self._limit_s
            run = run_tests(self._python, tests, self._new_folder("confirmed"), limit_s, self._stop)
            if run.end:
                raise RuntimeError(f"the tests that found mutants cannot be run without them: {run.end}")
            failed = set(run.failed)
        return [self._confirm_one(number, result, failed) for number, result in enumerate(results)]

    def _run_one(self, number: int, mutant: Mutant) -> Result:
        folder = self._new_folder(str(number))
        tree = folder / "tree"
        ignored = shutil.ignore_patterns(".venv", "*-pytest-*.pyc")
        shutil.copytree(self._original, tree, symlinks=True, ignore=ignored)
        mutant.apply(tree)
        try:
            run = run_tests(create_interpreter(tree), mutant.tests, folder, self._limit_s, self._stop, "-x")
        finally:
            shutil.rmtree(folder)
        if run.end:
            return Result(mutant, "found", run.end, run.seconds, is_test=False)
        return Result(mutant, "found" if run.failed else "survived", "".join(run.failed[:1]), run.seconds)

    def _confirm_one(self, number: int, result: Result, failed: set[str]) -> Result:
        if result.state == "found" and not result.is_test:
            folder = self._new_folder(f"confirmed-{number}")
            limit_s = CONFIRMATION * self._limit_s
            run = run_tests(self._python, result.mutant.tests, folder, limit_s, self._stop, "-x")
            failed = {result.by} if run.end or run.failed else set()
        return replace(result, state="not counted") if result.by in failed else result

    def _new_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder
