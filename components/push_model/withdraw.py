"""Withdraw a pushed version, so that the version before it is served, restore it, or promote a canary.

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
    ALL,
    WITHDRAWN,
    Change,
    Changes,
    canary_folder,
    complete_change,
    find_canary,
    is_canary,
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
    """Withdraw a version, by default the canary, or the newest one if there is none.

    With ``allow``, later runs may push the same files again. A version that is withdrawn already stays so; what was not
    completed is completed.

    Raises:
        ComponentError: If there is no such version, or no other one and the number was not given, or a registration
            fails; the version is then withdrawn.
    """

    def choose(versions: Versions | StoreVersions, changes: Changes) -> Change:
        numbers = versions.numbers()
        served = newest = max(numbers, default=None)
        if canary := find_canary(changes, newest):
            numbers, newest = [*numbers, canary.version], canary.version
        stopped = stopped_version(changes, "withdrawn") if version is None else None
        # A command that is repeated after a failure withdraws no second version, unless there is a new one.
        number = stopped if stopped and stopped > (newest or 0) else newest if version is None else version
        if number is not None and is_withdrawn(changes.get(number, ())):
            last = changes[number][-1]
            if last.allow == allow:
                return last
            return new_change(number, "withdrawn", last.digest, reason, allow=allow, served=last.served)
        if number is not None and is_canary(changes.get(number, ())):
            last = changes[number][-1]
            return new_change(last.version, "withdrawn", last.digest, reason, allow=allow, served=last.served)
        if canary and number == served:
            raise _next_to_canary(destination, canary, f"version {number} answers the other requests")
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
        if number is not None and number in changes and changes[number][-1].action == "restored":
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
        newest = versions.newest()
        if (canary := find_canary(changes, newest)) and last.version > (newest or 0):
            raise _next_to_canary(destination, canary, f"version {last.version} would be served instead")
        if last.served is None:
            return new_change(last.version, "restored", last.digest, reason)
        _check_served(versions.destination, last, newest)  # it was a canary, and is one again
        share = next(change.share for change in reversed(changes[last.version]) if is_canary([change]))
        return new_change(last.version, "restored", last.digest, reason, share=share, served=newest)

    return _change(destination, choose)


def promote(destination: str, version: int | None, reason: str = "", share: int = ALL) -> Withdrawal:
    """Serve a canary to all, the one there is by default, or change its share of the requests, in percent.

    A version that is promoted already stays so; what was not completed is completed.

    Raises:
        ComponentError: If there is no such canary, another version than before is served next to it, or a registration
            fails; the canary is then promoted.
    """

    def choose(versions: Versions | StoreVersions, changes: Changes) -> Change:
        newest = versions.newest()
        canary = find_canary(changes, newest)
        number = version
        if number is None:
            number = canary.version if canary else stopped_version(changes, "promoted") or newest
        of_version = changes.get(number or 0, ())
        if of_version and (of_version[-1].action, of_version[-1].share) == ("promoted", share):
            return of_version[-1]
        if not is_canary(of_version):
            received = "no version is a canary" if version is None else f"version {version} is no canary"
            received = f"{versions.destination}: {received}"
            fix = f"the canary is version {canary.version}" if canary else "push one: tfopt push_model --canary 10%"
            raise ComponentError(received, "a version that push_model pushed with canary", fix)
        last = of_version[-1]
        _check_served(versions.destination, last, newest)
        return new_change(last.version, "promoted", last.digest, reason, share=share, served=last.served)

    return _change(destination, choose)


def _check_served(destination: str, canary: Change, newest: int | None) -> None:
    """Raise ComponentError if the version that answered the other requests is not the newest one any more."""
    if canary.served != newest:
        received = f"{destination}: version {canary.version} was a canary next to version {canary.served}"
        received = f"{received}; version {newest} is served now"
        fix = f"withdraw it, then push its model again: tfopt withdraw {shlex.quote(destination)} {canary.version}"
        raise ComponentError(received, f"version {canary.served} as the served one", f"{fix} --allow")


def _next_to_canary(destination: str, canary: Change, received: str) -> ComponentError:
    place = shlex.quote(destination)
    fix = f"promote it or take it back first: tfopt promote {place}, or tfopt withdraw {place}"
    return ComponentError(f"{received}; {canary}", "no canary next to it", fix)


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
        if record and record.trained:
            _update_warm_start(versions.destination, change, record.trained)
    updates = update_registrations(versions, record.pushed, parse_targets(record.targets)) if record else {}
    with translate_errors(versions.destination, is_push=False):
        return Withdrawal(complete_change(versions.destination, change), versions.newest(), updates)


def _update_warm_start(destination: str, change: Change, trained: str) -> None:
    """Let the next training start from the model behind a promoted version, and not from that of a withdrawn one."""
    canaries = canary_folder(destination)
    if change.action == "withdrawn":
        if warm_start.forget_model(destination, trained):
            log.info("the next training does not start from the model behind version %d", change.version)
        warm_start.forget_model(canaries, trained)
    elif change.action == "promoted" and change.share == ALL:
        model = warm_start.load_model(canaries)
        if model and model.digest == trained:
            warm_start.store_model(destination, model, is_locked=True)
            warm_start.forget_model(canaries, trained)


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
