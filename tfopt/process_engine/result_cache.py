"""Results of steps in the folder of a run: where they are, and which of them may be reused.

    artifacts/STEP/OUTPUT/KEY    an output
    executions/STEP/KEY.json     its record, written when all outputs of the step are complete

KEY is a digest of what the result depends on. A result that was made again, because the first one was removed or
changed or may not be reused, has KEY with a number.
"""

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from tfopt.artifacts import Artifact, Model, staging
from tfopt.artifacts.report_schema import dump, parse
from tfopt.dag.dag import Step
from tfopt.errors import ComponentError
from tfopt.execution import code_digest


@dataclass(frozen=True)
class StoredOutput:
    """An output of an execution.

    Attributes:
        path: Its folder, relative to that of the run, which may be moved.
        digest: Digest of its content.
        metadata: Metadata of the artifact.
    """

    path: str
    digest: str
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Execution:
    """The record of one execution of a step: all that its result depends on, and the result.

    Attributes:
        component: Import path of the component.
        code: Digest of the code that the component can reach.
        inputs: Content digests of the artifacts of each input; None if a remote file has no digest.
        parameters: Parameters of the component.
        outputs: The outputs by name.
        seconds: Time of the execution.
        finished: Time of its end, in UTC.
    """

    schema_version: ClassVar[int] = 1
    component: str
    code: str
    inputs: dict[str, list[str | None]]
    parameters: dict[str, Any]
    outputs: dict[str, StoredOutput]
    seconds: float
    finished: str


class StepResults:
    """The results of one step in the folder of a run, for given inputs and parameters."""

    def __init__(
        self, root: Path, step: Step, inputs: Mapping[str, list[str | None]], parameters: Mapping[str, Any]
    ) -> None:
        """Compute the key of the result.

        Args:
            root: The run's folder.
            step: The step.
            inputs: Content digests of the artifacts of each input; None if a remote file has no digest.
            parameters: All parameters of the component.
        """
        self._root, self._step = root, step
        self._depends: dict[str, Any] = {
            "component": step.component.path,
            "code": code_digest.digest(step.component, parameters),
            "inputs": dict(inputs),
            "parameters": dict(parameters),
        }
        self._key = self._name = hashlib.sha256(json.dumps(self._depends, sort_keys=True).encode()).hexdigest()[:16]
        self._records = root / "executions" / step.id

    def find(self) -> dict[str, Artifact] | None:
        """Return the outputs of an earlier execution that may be reused; None if there is none."""
        unknown = any(digest is None for digests in self._depends["inputs"].values() for digest in digests)
        if unknown or self._step.component.cache == "never":
            return None
        return next(self._unchanged(), None)

    def new_targets(self) -> dict[str, Path]:
        """Return a path for each output where nothing exists."""
        names = (self._key if number == 1 else f"{self._key}-{number}" for number in itertools.count(1))
        self._name = next(
            name
            for name in names
            if not any(path.exists() for path in (self._record(name), *self._targets(name).values()))
        )
        return self._targets(self._name)

    def store(self, outputs: Mapping[str, Artifact], seconds: float) -> None:
        """Write the record of an execution that wrote to the `new_targets`, so that later runs can reuse them."""
        execution = Execution(
            **self._depends,
            outputs={
                name: StoredOutput(
                    artifact.path.relative_to(self._root).as_posix(), artifact.content_digest, artifact.metadata
                )
                for name, artifact in outputs.items()
            },
            seconds=seconds,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self._records.mkdir(parents=True, exist_ok=True)
        partial = staging.new_path(self._records)
        partial.write_text(json.dumps(dump(execution), indent=1))
        partial.rename(self._record(self._name))

    def _unchanged(self) -> Iterator[dict[str, Artifact]]:
        """Yield the outputs of each earlier execution whose outputs have the recorded content, newest first."""
        for file in sorted(self._records.glob(f"{self._key}*.json"), key=lambda file: -file.stat().st_mtime_ns):
            with contextlib.suppress(ComponentError, ValueError):  # a damaged record, or one of another version
                stored = parse(Execution, json.loads(file.read_text()), str(file)).outputs
                outputs = {
                    name: port.type(self._root / stored[name].path, stored[name].metadata)
                    for name, port in self._step.component.outputs.items()
                }
                is_failed = any(isinstance(output, Model) and output.failure for output in outputs.values())
                if is_failed:  # another attempt may succeed, with another version of a library or more memory
                    continue
                if all(artifact.content_digest == stored[name].digest for name, artifact in outputs.items()):
                    yield outputs

    def _record(self, name: str) -> Path:
        return self._records / f"{name}.json"

    def _targets(self, name: str) -> dict[str, Path]:
        folder = self._root / "artifacts" / self._step.id
        return {output: folder / output / name for output in self._step.component.outputs}
