"""Decide what a push does: nothing, a new version, or a canary next to the served version."""

import shlex
from dataclasses import dataclass
from typing import Protocol

from tfopt.model_store.withdrawals import Change, find_canary, is_withdrawn, new_change, read_changes, write_change

ALREADY_NEWEST = "the newest version is this very model already"
ALREADY_CANARY = "the canary is this very model already"


class NumberedVersions(Protocol):
    """The versions of a folder or a store."""

    destination: str

    def newest(self) -> int | None: ...  # noqa: D102
    def digest(self, version: int) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class PushResult:
    """The result of a push."""

    version: int | None  # that contains the model; None if it was withdrawn
    previous: int | None  # the newest one before; equal to ``version`` if nothing was added
    reason: str  # ``blessed``, or why nothing was added
    digest: str  # of the version's files
    share: int | None = None  # percent of the requests, if the version is a canary


@dataclass(frozen=True)
class PushPlan:
    """Description of what a push of some files would do."""

    digest: str  # of the files
    previous: int | None  # the newest version
    version: int | None = None  # that has these files already
    share: int | None = None  # percent of the requests, for a canary
    refusal: str = ""  # why nothing is pushed

    @property
    def reason(self) -> str:
        """Return ``blessed``, or why nothing is added."""
        if self.version is None:
            return self.refusal or "blessed"
        return ALREADY_CANARY if self.share else ALREADY_NEWEST

    def result(self, version: int | None) -> PushResult:
        """Return the result with the version that contains the files."""
        return PushResult(version, self.previous, self.reason, self.digest, self.share)


def plan_push(versions: NumberedVersions, digest: str, share: int | None) -> PushPlan:
    """Return what a push of files with this digest does; while there is a canary, no other version is pushed."""
    previous = versions.newest()
    if previous is not None and versions.digest(previous) == digest:
        return PushPlan(digest, previous, previous)
    canary = find_canary(read_changes(versions.destination), previous)
    if canary and canary.digest == digest:
        return PushPlan(digest, previous, canary.version, canary.share)
    refusal = why_withdrawn(versions.destination, digest)
    if canary and not refusal:
        refusal = why_canary(versions.destination, canary)
    return PushPlan(digest, previous, share=share if previous is not None else None, refusal=refusal or "")


def record_canary(destination: str, plan: PushPlan, version: int) -> None:
    """Record that a version is a canary, unless it was one before the push; without the record there is no version."""
    if plan.version is None and plan.share:
        change = new_change(version, "pushed", plan.digest, "", share=plan.share, served=plan.previous)
        write_change(destination, change, read_changes(destination))


def why_withdrawn(destination: str, digest: str) -> str | None:
    """Return that a version with these files was withdrawn, and how to push it; None if it may be pushed."""
    for number, changes in read_changes(destination).items():
        last = changes[-1]
        if is_withdrawn(changes) and last.digest == digest and not last.allow:
            command = f"tfopt restore {shlex.quote(destination)} {number}"
            return f"{last}; to push it again: {command}, or tfopt withdraw with --allow"
    return None


def why_canary(destination: str, canary: Change) -> str:
    """Return that there is a canary, next to which no other version becomes the newest one, and what to do."""
    place = shlex.quote(destination)
    return f"{canary}; promote it or take it back first: tfopt promote {place}, or tfopt withdraw {place}"
