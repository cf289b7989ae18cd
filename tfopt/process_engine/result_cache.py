"""Results of steps in the folder of a run: where they are, and which of them may be reused.

    artifacts/STEP/OUTPUT/KEY    an output
    executions/STEP/KEY.json     its record, written when all outputs of the step are complete
    executions/STEP/KEY.unfinished    names outputs of a running, killed or failed execution

KEY is a digest of what the result depends on. A result that was made again, because the first one was removed or
changed or may not be reused, has KEY with a number. The modification time of a record is that of its last use.
"""

import contextlib
import glob
import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from tfopt.artifacts import Artifact, Model
from tfopt.dag.dag import Step
from tfopt.dag.planned_step import ATTEMPT_FAILED, OUTPUTS_CHANGED
from tfopt.errors import ComponentError
from tfopt.execution import code_digest
from tfopt.execution.code_digest import Code
from tfopt.formatting import changes
from tfopt.reports.report_schema import dump, parse
from tfopt.storage import staging
from tfopt.storage.owned_files import is_below, is_own
from tfopt.value_types import JsonObject

KEY = re.compile(r"[0-9a-f]{16}(-\d+)?")  # the name of a result
UNFINISHED = ".unfinished"
TICK_NS = 1_000_000  # a difference between modification times that file systems store


@dataclass(frozen=True)
class StoredOutput:
    """An output of an execution; its path is relative to the folder of the run, which may be moved."""

    path: str
    digest: str
    metadata: dict[str, object]


@dataclass(frozen=True)
class Execution:
    """The record of one execution of a step: all that its result depends on, and the result."""

    schema_version: ClassVar[int] = 1
    component: str
    code: str  # digest of the code that the component can reach
    # content digests of the artifacts of each input; None if a remote file has no digest
    inputs: dict[str, list[str | None]]
    parameters: JsonObject
    outputs: dict[str, StoredOutput]
    seconds: float
    finished: str  # time of its end, in UTC
    code_parts: Code | None = None  # what the digest of the code was made of; None in records of earlier versions


class StepResults:
    """The results of one step in the folder of a run, for given inputs and parameters."""

    def __init__(
        self, root: Path, step: Step, inputs: Mapping[str, list[str | None]], parameters: Mapping[str, Any]
    ) -> None:
        """Compute the key of the result.

        The digest of an input is None if it is unknown: a remote file has none, and in a plan an artifact that does not
        exist yet.
        """
        self._root, self._step = root, step
        self._code = code_digest.describe(step.component, parameters)
        self._inputs, self._parameters = dict(inputs), dict(parameters)
        depends: JsonObject = {"component": step.component.path, "code": self._code.digest}
        depends |= {"inputs": self._inputs, "parameters": self._parameters}
        self._key = self._name = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:16]
        self._records = root / "executions" / step.id

    def find(self, *, mark_used: bool = False) -> dict[str, Artifact] | None:
        """Return the outputs of an earlier execution that may be reused; None if there is none."""
        unknown = any(digest is None for digests in self._inputs.values() for digest in digests)
        if unknown or self._step.component.cache == "never":
            return None
        for record, execution in self._read(f"{self._key}*.json"):
            with contextlib.suppress(ComponentError, ValueError):
                outputs, stored = self._outputs(execution), execution.outputs
                paths = [Path(output.path) for output in stored.values()]
                is_below_root = all(not path.is_absolute() and ".." not in path.parts for path in paths)
                if _may_succeed_now(outputs) or not is_below_root:
                    continue
                if all(artifact.content_digest == stored[name].digest for name, artifact in outputs.items()):
                    if mark_used:
                        _mark_used(record)
                    return outputs
        return None

    def executions(self) -> list[Execution]:
        """Return the records of all earlier executions of the step, newest first, without damaged ones."""
        return [execution for _, execution in self._read("*.json")]

    def differences(self, execution: Execution) -> list[str]:
        """List how an earlier execution differs from this step; inputs that are unknown count as equal."""
        lines = []
        if execution.component != self._step.component.path:
            lines.append(f"component changed: {execution.component} -> {self._step.component.path}")
        for name in sorted({*execution.inputs, *self._inputs}):
            before, now = execution.inputs.get(name, []), self._inputs.get(name, [])
            differs = any(new not in (old, None) for old, new in zip(before, now, strict=False))
            if differs or len(before) != len(now):
                lines.append(f"{name} changed")
        lines += changes("parameter ", execution.parameters, self._parameters)
        if execution.code != self._code.digest:
            lines += code_digest.differences(execution.code_parts, self._code)
        return lines

    def repetition(self) -> str:
        """Return why an execution that does not differ is not reused."""
        failed = any(_may_succeed_now(self._outputs(execution)) for _, execution in self._read(f"{self._key}*.json"))
        return ATTEMPT_FAILED if failed else OUTPUTS_CHANGED

    def new_targets(self) -> dict[str, Path]:
        """Return a path for each output where nothing exists, and record that they will be written."""
        names = (self._key if number == 1 else f"{self._key}-{number}" for number in itertools.count(1))
        self._name = next(
            name for name in names if not any(map(Path.exists, [self._record(name), *self._targets(name).values()]))
        )
        self._records.mkdir(parents=True, exist_ok=True)
        named = json.dumps({"outputs": sorted(self._step.component.outputs)})
        self._record(self._name).with_suffix(UNFINISHED).write_text(named)
        return self._targets(self._name)

    def store(self, outputs: Mapping[str, Artifact], seconds: float) -> None:
        """Write the record of an execution that wrote to the `new_targets`, so that later runs can reuse them."""
        execution = Execution(
            component=self._step.component.path,
            code=self._code.digest,
            inputs=self._inputs,
            parameters=self._parameters,
            outputs={
                name: StoredOutput(
                    output.path.relative_to(self._root).as_posix(), output.content_digest, output.metadata
                )
                for name, output in outputs.items()
            },
            seconds=seconds,
            code_parts=self._code,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        record = self._record(self._name)
        staging.replace_file(record, json.dumps(dump(execution), indent=1).encode())
        _mark_used(record)
        record.with_suffix(UNFINISHED).unlink()

    def _read(self, pattern: str) -> Iterator[tuple[Path, Execution]]:
        """Yield the records of executions, newest first; those of other users count for nothing."""
        for file in _newest_first(self._records.glob(pattern)):
            # a damaged record, or one of another version
            with contextlib.suppress(ComponentError, ValueError, RecursionError):
                if is_own(file):
                    yield file, parse(Execution, json.loads(file.read_text()), str(file))

    def _outputs(self, execution: Execution) -> dict[str, Artifact]:
        stored = execution.outputs
        return {
            name: port.type(self._root / stored[name].path, stored[name].metadata)
            for name, port in self._step.component.outputs.items()
        }

    def _record(self, name: str) -> Path:
        return self._records / f"{name}.json"

    def _targets(self, name: str) -> dict[str, Path]:
        folder = self._root / "artifacts" / self._step.id
        return {output: folder / output / name for output in self._step.component.outputs}


def find_old_records(root: Path, keep: int) -> tuple[list[Path], list[Path]]:
    """Return the records of all executions but the last `keep` ones of each step, and the records of these."""
    steps: dict[str, list[Path]] = {}
    for record in _named_records(root, ".json"):
        steps.setdefault(record.parent.name, []).append(record)
    ordered = [_newest_first(records) for records in steps.values()]
    return list(chain(*(records[keep:] for records in ordered))), list(chain(*(records[:keep] for records in ordered)))


def find_unfinished(root: Path) -> list[Path]:
    """Return the files that name the results of killed and failed executions."""
    return _named_records(root, UNFINISHED)


def _named_records(root: Path, suffix: str) -> list[Path]:
    """Return the records of this user in the folder of a run; links are not followed."""
    files = (file for file in root.glob(f"executions/*/*{suffix}") if KEY.fullmatch(file.stem))
    return [file for file in files if is_own(file) and is_below(root, file)]


def output_paths(root: Path, record: Path) -> list[Path]:
    """Return the paths of the outputs that a record names, all with its name if it cannot be read."""
    paths = list(root.absolute().glob(f"artifacts/{glob.escape(record.parent.name)}/*/{record.stem}"))
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        names = set(json.loads(record.read_text())["outputs"])
        return [path for path in paths if path.parent.name in names]
    return paths


def _newest_first(records: Iterable[Path]) -> list[Path]:
    return sorted(records, key=lambda file: -file.stat().st_mtime_ns)


def _mark_used(record: Path) -> None:
    """Set the time of a record after those of its folder, also if the clock of the machine was set back meanwhile."""
    newest = max((file.stat().st_mtime_ns for file in record.parent.glob("*.json") if file != record), default=0)
    used = max(time.time_ns(), newest + TICK_NS)
    with contextlib.suppress(OSError):  # a file system that gives files their times itself
        os.utime(record, ns=(used, used))


def _may_succeed_now(outputs: Mapping[str, Artifact]) -> bool:
    return any(isinstance(output, Model) and output.is_worth_another_attempt for output in outputs.values())
