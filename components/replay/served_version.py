"""Find the served version in a destination, or report why there is nothing to compare with."""

import hashlib
from dataclasses import replace
from pathlib import Path

from tfopt.artifacts import CARD, Model
from tfopt.components.replay.parameters import ReplayTest
from tfopt.components.replay.result import serving_row, tested_reason, uncompared
from tfopt.errors import ComponentError
from tfopt.model_store.withdrawals import served_versions
from tfopt.reports.replay_report import ReplayReport
from tfopt.reports.serving_report import ServedModel
from tfopt.serving.layouts import version_files
from tfopt.storage import remote_files


def find_served(model: Model, tested: list[ServedModel], test: ReplayTest) -> Model | ReplayReport:
    """Return the newest version in the destination, or the report of a replay that has nothing to compare.

    Raises:
        ComponentError: If there is no destination, or neither a version in it nor the result of a serving test.
    """
    if test.destination is None:
        expected = "the served version, or the destination that contains it"
        raise ComponentError("no served", expected, "pass served=DESTINATION/8, or destination=DESTINATION")
    versions = served_versions(test.destination)
    row = tested[0] if tested else serving_row(model, test)
    if not versions:
        if not tested:
            fix = "check the destination; for a first version pass tested, the infra_blessing of validate_serving"
            raise ComponentError(f"no version is served in {test.destination}", "a version to compare with", fix)
        reason = f"no version is served in {test.destination} yet: the result of validate_serving is passed on"
        return uncompared(row, None, reason if row.blessed else row.reason)
    number, address = versions.popitem()
    served = Model.open(remote_files.local_copy(address))
    served.signature = model.signature
    if not _has_files(served, version_files(model, row.layout)):
        return served
    refusal = tested_reason(tested)
    reason = refusal or f"version {number} in {test.destination}, which is served, is this very model"
    row = replace(row, blessed=not refusal, reason=reason, replayed=True)
    return uncompared(row, serving_row(served, test), reason)


def _has_files(served: Model, files: dict[str, Path]) -> bool:
    """Return True if a version has the files of a model; warm-up requests and the model card do not matter."""
    contents = {served.path / name: file for name, file in files.items() if file.name != CARD}
    is_same = (file.is_file() and _digest(file) == _digest(source) for file, source in contents.items())
    return bool(contents) and all(is_same)  # a model that could not be made has no files


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
