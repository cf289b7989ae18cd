"""Describe a pushed version for registrations."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PushedVersion:
    """A pushed version, as it is registered. It is passed to a child process, so it contains plain values only.

    Attributes:
        name: The name to register under.
        destination: The address of the destination, for readers elsewhere.
        format: Format of the model.
        layout: The serving layout.
        model: Name of the model in the decision.
        digest: Digest of the model's files.
        reason: Why it was pushed.
        fallback: True if the parent was pushed instead of the selected model.
        environment: Environment variables that its server must be started with.
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
        tags = {
            "tfopt.version": str(self.number),
            "tfopt.digest": self.digest,
            "tfopt.destination": self.destination,
            "tfopt.format": self.format,
            "tfopt.layout": self.layout,
            "tfopt.model": self.model,
            "tfopt.reason": self.reason,
            "tfopt.fallback": str(self.fallback).lower(),
        }
        return tags | {f"tfopt.environment.{name}": value for name, value in self.environment.items()}
