"""Results of a long series of trials: a file from which the series is continued, and a table of them by kind."""

import collections
import importlib
import json
import os
import sys
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Trial:
    """The end of one trial.

    Attributes:
        kind: The row of the table.
        name: Names the trial within the series.
        score: How it ended.
        text: What belongs to a defect.
    """

    kind: str
    name: str
    score: str
    text: str = ""


class TrialLog:
    """Collects trials, and those that an earlier process wrote to the same file."""

    def __init__(self, file: Path | None, good: Collection[str]) -> None:
        """Read the file, if there is one.

        Args:
            file: Gets a line of JSON for each trial.
            good: The scores that are no defects.
        """
        self._file, self._good = file, good
        lines = file.read_text().splitlines() if file and file.is_file() else []
        self.trials = [Trial(**json.loads(line)) for line in lines]

    @property
    def defects(self) -> int:
        """Number of trials with a defect."""
        return sum(trial.score not in self._good for trial in self.trials)

    def add(self, trial: Trial) -> None:
        """Add a trial, and print it if it is a defect."""
        self.trials.append(trial)
        if self._file:
            with self._file.open("a") as lines:
                lines.write(json.dumps(asdict(trial)) + "\n")
        if trial.score not in self._good:
            print(f"{trial.score}: {trial.name}\n{trial.text}\n", flush=True)

    def scores(self) -> str:
        """Return the number of trials by score, the most frequent first."""
        counts = collections.Counter(trial.score for trial in self.trials)
        return ", ".join(f"{score} {count}" for score, count in counts.most_common())

    def table(self) -> str:
        """Return a line for each kind: the number of its trials, and of those with a defect."""
        counts = collections.Counter(trial.kind for trial in self.trials)
        defects = collections.Counter(trial.kind for trial in self.trials if trial.score not in self._good)
        width = max(map(len, counts), default=0)
        return "\n".join(f"{kind:{width}} {counts[kind]:5} {defects[kind]:3} defects" for kind in sorted(counts))


def run_trials(module: str, words: tuple[str, ...], output: Path) -> int:
    """Call the ``main`` of a module with words, and return its result; what it prints is in a file.

    For forks of a process that has imported TensorFlow, which takes a new process seconds, and has not run it.
    """
    with output.open("wb") as stream:
        os.dup2(stream.fileno(), 1)
    status: int = importlib.import_module(module).main(words)
    sys.stdout.flush()
    return status
