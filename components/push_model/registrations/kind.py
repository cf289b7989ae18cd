"""Kinds of registrations: those of tfopt, and the entry points ``tfopt.registrations`` of other packages."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tfopt.declaration.extensions import Extensions


@dataclass(frozen=True)
class PushedVersion:
    """A pushed version, as it is registered, with plain values only. `PushedReport` describes the other attributes.

    Attributes:
        name: The name to register under.
        destination: The address of the destination, for readers elsewhere.
        metrics: Its metrics by name; empty without a decision.
        baseline_metrics: The baseline's.
        number: Number of the version; 0 before the push.
        path: The folder or address of the version, for this process; empty before the push.
    """

    name: str
    destination: str
    format: str
    layout: str
    model: str
    digest: str
    reason: str
    fallback: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    baseline_metrics: dict[str, float] = field(default_factory=dict)
    number: int = 0
    path: str = ""

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
    """A kind of registrations, as an entry point names it.

    Attributes:
        register: Registers a version at an address, in a child process, and returns what it wrote in a few words. It
            must be possible to call it again after a failure.
        package: The module that it imports, if it is to be installed before the push.
        check_address: Raises ComponentError for an address in a form that the kind does not have.
        check_version: Raises ComponentError for a version that cannot be registered. It is called before the push, so
            the version has no number and path.
        update: Changes what `register` wrote about a version that was withdrawn or restored: called with the address,
            the version, the newest version that is left (None if there is none), and who withdrew it, when and why
            (None if it was restored). It returns what it changed, and can be called again. Without it the registration
            stays as it is.
    """

    register: Callable[[str, PushedVersion], str]
    package: str | None = None
    check_address: Callable[[str], None] = lambda address: None
    check_version: Callable[[PushedVersion], None] = lambda version: None
    update: Callable[[str, PushedVersion, PushedVersion | None, str | None], str] | None = None


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
