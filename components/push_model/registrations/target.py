"""A target of registrations: its kind and address, and the name of a version there."""

import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfopt.components.push_model.registrations.kind import KINDS, PushedVersion
from tfopt.error_messages import first_line, machine_error, nearest
from tfopt.errors import ComponentError


@dataclass(frozen=True)
class Target:
    """A system to register with: a name in `KINDS`, and an address, or the file or folder to write."""

    kind: str
    address: str

    def __str__(self) -> str:
        """Return the target as it is passed."""
        return f"{self.kind}={self.address}"

    def check(self, version: PushedVersion) -> None:
        """Check, before a version is added, what can be checked without the system.

        Raises:
            ComponentError: If the version cannot be registered, or the package of the kind is not installed.
        """
        kind = KINDS[self.kind]
        if kind.package and not importlib.util.find_spec(kind.package):
            missing = ModuleNotFoundError(f"register={self}: no package {kind.package}", name=kind.package)
            raise machine_error(missing) or missing
        kind.check_version(version)


def parse_targets(texts: Sequence[str]) -> list[Target]:
    """Parse targets of the form ``KIND=ADDRESS``.

    >>> parse_targets(["tensorboard=runs/boards"])
    [Target(kind='tensorboard', address='runs/boards')]

    Raises:
        ComponentError: If a kind is unknown, or an address is missing or not one of its kind.
    """
    targets = []
    for text in texts:
        kind, _, address = (part.strip() for part in text.partition("="))
        if kind not in KINDS:
            raise ComponentError(f"{text!r}", "KIND=ADDRESS", nearest(kind, KINDS))
        if not address:
            raise ComponentError(f"{text!r}", "KIND=ADDRESS", f"pass the address, as in {kind}=ADDRESS")
        KINDS[kind].check_address(address)
        targets.append(Target(kind, address))
    return targets


def parse_name(text: str) -> str:
    """Return a name that is a valid name of a folder, too.

    >>> parse_name("digits 8x8")
    'digits 8x8'

    Raises:
        ComponentError: If it is not.
    """
    if not re.fullmatch(r"\w[\w. -]*", text):
        raise ComponentError(
            f"the name {text!r}", "letters, digits, spaces and the characters . _ -", "pass such a name as model_name"
        )
    return text


def register_with(target: Target, version: PushedVersion) -> str:
    """Register a version with one target; called in a child process, because clients change the process they run in.

    Raises:
        ComponentError: If the client raises any exception.
    """
    return _call(target, "the registration", KINDS[target.kind].register, target.address, version)


def update_with(target: Target, version: PushedVersion, served: PushedVersion | None, withdrawn: str | None) -> str:
    """Update a registration after a withdrawal or restoration, as `register_with`; see `Kind.update`."""
    update = KINDS[target.kind].update
    if update is None:
        return "unchanged: this kind does not follow withdrawals"
    return _call(target, "the change", update, target.address, version, served, withdrawn)


def _call(target: Target, what: str, function: Callable[..., str], *arguments: object) -> str:
    try:
        return function(*arguments)
    except ComponentError as error:
        failure = ComponentError(error.received, error.expected, error.fix)
    except Exception as error:  # clients raise exceptions of their own, and those of their HTTP libraries
        text = f"{type(error).__name__}: {first_line(error)[:300]}"
        failure = ComponentError(text, f"{target.kind} that accepts {what}", "check the address and the server")
    raise failure  # after the handlers, because a chained exception of a client may not be picklable
