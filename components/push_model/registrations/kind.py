"""Kinds of registrations, and targets: a kind with an address.

Kinds are those of tfopt, and the entry points ``tfopt.registrations`` of other packages.
"""

import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tfopt.declaration.extensions import Extensions
from tfopt.error_messages import first_line, machine_error, nearest
from tfopt.errors import ComponentError


@dataclass(frozen=True)
class PushedVersion:
    """A pushed version, as it is registered, with plain values only. `PushedReport` describes the other attributes."""

    name: str  # to register under
    destination: str  # its address, for readers elsewhere
    format: str
    layout: str
    model: str
    digest: str
    reason: str
    fallback: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)  # empty without a decision
    baseline_metrics: dict[str, float] = field(default_factory=dict)  # the metrics of the baseline
    number: int = 0  # of the version; 0 before the push
    path: str = ""  # folder or address of the version, for this process; empty before the push

    @property
    def address(self) -> str:
        """Return the address of the version, for readers elsewhere."""
        return f"{self.destination.rstrip('/')}/{self.number}"

    @property
    def tags(self) -> dict[str, str]:
        """Return what identifies the version, as text by key."""
        names = ("digest", "destination", "format", "layout", "model", "reason")
        tags: dict[str, str] = {f"tfopt.{name}": getattr(self, name) for name in names}
        tags |= {"tfopt.version": str(self.number), "tfopt.fallback": str(self.fallback).lower()}
        return tags | {f"tfopt.environment.{name}": value for name, value in self.environment.items()}


@dataclass(frozen=True)
class Kind:
    """A kind of registrations, as an entry point names it."""

    # Registers a version at an address, in a child process, and returns what it wrote in a few words. It must be
    # possible to call it again after a failure.
    register: Callable[[str, PushedVersion], str]
    package: str | None = None  # the module that it imports, if it is to be installed before the push
    # Raises ComponentError for an address in a form that the kind does not have.
    check_address: Callable[[str], None] = lambda address: None
    # Raises ComponentError for a version that cannot be registered; called before it has a number and a path.
    check_version: Callable[[PushedVersion], None] = lambda version: None
    # Changes what `register` wrote about a version that was withdrawn or restored. It is called with the address, the
    # version, the newest version that is left (None if there is none), and who withdrew it, when and why (None if it
    # was restored). It returns what it changed, and can be called again. Without it the registration stays as it is.
    update: Callable[[str, PushedVersion, PushedVersion | None, str | None], str] | None = None

    # Writes a canary instead of `register` and `update`: it is called with the address, the version that is pushed or
    # changed, the version that gets a share of the requests, and the share in percent; the version that had all of them
    # keeps the rest. With 0 it keeps them all, after a canary was withdrawn. Without it the share is not registered.
    split: Callable[[str, PushedVersion, PushedVersion, int], str] | None = None


@dataclass(frozen=True)
class Split:
    """A version, and the share of the requests that it gets."""

    version: PushedVersion
    percent: int


KINDS = Extensions(
    "tfopt.registrations",
    Kind,
    {
        "kserve": "tfopt.components.push_model.registrations.kserve.KIND",
        "mlflow": "tfopt.components.push_model.registrations.mlflow.KIND",
        "model-registry": "tfopt.components.push_model.registrations.model_registry.KIND",
        "tensorboard": "tfopt.components.push_model.registrations.tensorboard.KIND",
    },
)


@dataclass(frozen=True)
class Target:
    """A system to register with: a name in `KINDS`, and an address, or the file or folder to write."""

    kind: str
    address: str

    def __str__(self) -> str:
        """Return the target as it is passed."""
        return f"{self.kind}={self.address}"

    def check(self, version: PushedVersion) -> None:
        """Raise ComponentError if a version cannot be registered, or the package of the kind is not installed."""
        kind = KINDS[self.kind]
        if kind.package and not importlib.util.find_spec(kind.package):
            missing = ModuleNotFoundError(f"register={self}: no package {kind.package}", name=kind.package)
            raise machine_error(missing) or missing
        kind.check_version(version)


def parse_targets(texts: Sequence[str]) -> list[Target]:
    """Parse targets of the form ``KIND=ADDRESS``; raise ComponentError for other kinds and addresses.

    >>> parse_targets(["tensorboard=runs/boards"])
    [Target(kind='tensorboard', address='runs/boards')]
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
    """Return a name that is a valid name of a folder, too; raise ComponentError if it is not.

    >>> parse_name("digits 8x8")
    'digits 8x8'
    """
    if not re.fullmatch(r"\w[\w. -]*", text):
        expected = "letters, digits, spaces and the characters . _ -"
        raise ComponentError(f"the name {text!r}", expected, "pass such a name as model_name")
    return text


def register_with(target: Target, version: PushedVersion, split: Split | None = None) -> str:
    """Register a version with one target; called in a child process, because clients change the process they run in.

    Raises:
        ComponentError: If the client raises any exception.
    """
    kind = KINDS[target.kind]
    if split and kind.split:
        return _call(target, "the canary", kind.split, target.address, version, split.version, split.percent)
    return _call(target, "the registration", kind.register, target.address, version)


def update_with(
    target: Target,
    version: PushedVersion,
    served: PushedVersion | None,
    withdrawn: str | None,
    split: Split | None = None,
) -> str:
    """Update a registration after a withdrawal, restoration or promotion, as `register_with`; see `Kind.update`."""
    kind = KINDS[target.kind]
    if split and kind.split:
        return _call(target, "the canary", kind.split, target.address, version, split.version, split.percent)
    if kind.update is None:
        return "unchanged: this kind does not follow withdrawals"
    return _call(target, "the change", kind.update, target.address, version, served, withdrawn)


def _call(target: Target, what: str, function: Callable[..., str], *arguments: object) -> str:
    try:
        return function(*arguments)
    except ComponentError as error:
        failure = ComponentError(error.received, error.expected, error.fix)
    except Exception as error:  # clients raise exceptions of their own, and those of their HTTP libraries
        text = f"{type(error).__name__}: {first_line(error)[:300]}"
        failure = ComponentError(text, f"{target.kind} that accepts {what}", "check the address and the server")
    raise failure  # after the handlers, because a chained exception of a client may not be picklable
