"""Withdraw a pushed version, so that the version before it is served, or restore it.

The change is recorded first (`tfopt.model_store.withdrawals`); what follows can be repeated, so that a command that was
killed is completed by the next one, or by the next push.
"""

import logging
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

from tfopt.components.push_model.registration import update_registrations
from tfopt.components.push_model.registrations.kind import parse_targets
from tfopt.components.push_model.store_versions import StoreVersions, open_versions
from tfopt.components.push_model.version_record import read_record
from tfopt.components.push_model.versions import Versions, folder_name, translate_errors
from tfopt.errors import ComponentError
from tfopt.model_store import warm_start
from tfopt.model_store.withdrawals import (
    WITHDRAWN,
    Change,
    Changes,
    complete_change,
    is_withdrawn,
    new_change,
    read_changes,
    stopped_version,
    write_change,
)
from tfopt.storage import remote_files

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Withdrawal:
    """The result of a command."""

    change: Change  # the last one of the version
    served: int | None  # number of the newest version that is left; None if there is none
    updates: dict[str, str]  # what was changed where the version is registered, by target


def withdraw(destination: str, version: int | None, reason: str, *, allow: bool = False) -> Withdrawal:
    """Withdraw a version, the newest one by default; with ``allow``, later runs may push the same files again.

    A version that is withdrawn already stays so; what was not completed is completed.

    Raises:
        ComponentError: If there is no such version, or no other one and the number was not given, or a registration
            fails; the version is then withdrawn.
    """

    def choose(versions: Versions | StoreVersions, changes: Changes) -> Change:
        numbers = versions.numbers()
        newest = max(numbers, default=None)
        stopped = stopped_version(changes, "withdrawn") if version is None else None
        # A command that is repeated after a failure withdraws no second version, unless there is a new one.
        number = stopped if stopped and stopped > (newest or 0) else newest if version is None else version
        if number is not None and is_withdrawn(changes.get(number, ())):
            last = changes[number][-1]
            return last if last.allow == allow else new_change(number, "withdrawn", last.digest, reason, allow=allow)
        if number not in numbers:
            received = f"{versions.destination}: no version{'' if number is None else f' {number}'}"
            expected = "the destination of pushed versions, and the number of one"
            raise ComponentError(received, expected, f"versions there: {', '.join(map(str, numbers)) or 'none'}")
        if version is None and len(numbers) == 1:
            received = f"{versions.destination} has only version {number}"
            fix = f"to serve nothing, name it: tfopt withdraw {shlex.quote(destination)} {number}"
            raise ComponentError(received, "an earlier version, which is then served", fix)
        return new_change(number, "withdrawn", versions.digest(number), reason, allow=allow)

    return _change(destination, choose)


def restore(destination: str, version: int | None, reason: str) -> Withdrawal:
    """Restore a withdrawn version under its number, the last withdrawn one by default; see `withdraw`."""

    def choose(versions: Versions | StoreVersions, changes: Changes) -> Change:
        withdrawn = [of_version[-1] for of_version in changes.values() if is_withdrawn(of_version)]
        number = stopped_version(changes, "restored") if version is None else version
        if number in changes and number in versions.numbers():
            return changes[number][-1]
        chosen = [change for change in withdrawn if version in (None, change.version)]
        last = max(chosen, key=lambda change: change.time, default=None)
        expected = "a version that tfopt withdraw withdrew"
        if last is None:
            numbers = ", ".join(str(change.version) for change in withdrawn if change.action == "withdrawn")
            received = "no version is" if version is None else f"version {version} is not"
            received = f"{versions.destination}: {received} withdrawn"
            raise ComponentError(received, expected, f"withdrawn versions: {numbers or 'none'}")
        if folder_name(remote_files.join(versions.destination, WITHDRAWN), last.version) is None:
            fix = f"move its files back to {versions.path(last.version)} yourself"
            raise ComponentError(f"{last}; its files are not there", expected, fix)
        return new_change(last.version, "restored", last.digest, reason)

    return _change(destination, choose)


def _change(destination: str, choose: Callable[[Versions | StoreVersions, Changes], Change]) -> Withdrawal:
    """Record the chosen change, unless it is recorded, and carry it out."""
    remote_files.check_scheme(destination)
    versions = open_versions(destination)
    if not remote_files.list_names(versions.destination):
        expected = "the folder or address that push_model pushes to"
        raise ComponentError(f"{destination}: nothing is there", expected, "check the path")
    with translate_errors(versions.destination, is_push=False), versions.locked():
        versions.complete_changes()
        changes, change = _choose_by_current(versions, choose)
        if change not in changes.get(change.version, ()):
            change = replace(change, complete=False)
            write_change(versions.destination, change, changes)
            versions.complete_changes()
        versions.show_newest()
        record = read_record(versions.destination, change.version)
        trained = record.trained if record and change.action == "withdrawn" else None
        if trained and warm_start.forget_model(versions.destination, trained):
            log.info("the next training does not start from the model behind version %d", change.version)
    updates = update_registrations(versions, record.pushed, parse_targets(record.targets)) if record else {}
    with translate_errors(versions.destination, is_push=False):
        return Withdrawal(complete_change(versions.destination, change), versions.newest(), updates)


def _choose_by_current(
    versions: Versions | StoreVersions, choose: Callable[[Versions | StoreVersions, Changes], Change]
) -> tuple[Changes, Change]:
    """Return the changes, and the one to make; in a store, another command may change them while they are read."""
    while True:
        changes = read_changes(versions.destination)
        try:
            return changes, choose(versions, changes)
        except ComponentError:
            if changes == read_changes(versions.destination):
                raise
