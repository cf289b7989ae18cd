"""Read what a replay of a canary's requests decided about it."""

from pathlib import Path

from tfopt.artifacts import InfraBlessing, Model
from tfopt.components.push_model.store_versions import open_versions
from tfopt.components.push_model.version_record import read_record
from tfopt.errors import ComponentError
from tfopt.model_store.withdrawals import canary_folder, find_canary, read_changes
from tfopt.reports.serving_report import ServedModel
from tfopt.storage import remote_files


def read_verdict(destination: str, version: int | None, verdict: str) -> tuple[int, ServedModel]:
    """Return the number of a canary, the one there is by default, and its row of an ``infra_blessing`` of `replay`.

    Raises:
        ComponentError: If there is no canary, or the verdict is about another model, or not of a replay.
    """
    versions = open_versions(destination)
    canary = find_canary(read_changes(versions.destination), versions.newest())
    if canary is None or version not in (None, canary.version):
        received = f"{versions.destination}: {'no canary' if canary is None else f'the canary is {canary.version}'}"
        fix = "leave the verdict out for a version that is promoted or withdrawn"
        raise ComponentError(received, "the canary that the verdict is about", fix)
    blessing = InfraBlessing.open(remote_files.local_copy(verdict))
    path = remote_files.join(canary_folder(versions.destination), str(canary.version))
    record = read_record(versions.destination, canary.version)
    digests = {Model(Path(remote_files.local_copy(path))).digest, record.pushed.digest if record else ""}
    row = next((row for row in blessing.load().models if row.digest in digests), None)
    if row is None or not row.replayed:
        received = f"{verdict}: {'about another model' if row is None else 'not of a replay'}"
        fix = f"tfopt replay --model {path} --served {versions.path(canary.served or 0)} --recording REQUESTS …"
        raise ComponentError(received, f"the infra_blessing of a replay of version {canary.version}", fix)
    return canary.version, row
