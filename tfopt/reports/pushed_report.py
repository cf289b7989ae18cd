"""The content of ``pushed.json``: whether a model was pushed, where to, as which version, and why."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class PushedReport:
    """The content of ``pushed.json``.

    Attributes:
        pushed: True if a model was pushed or is the newest version already.
        destination: The folder of versions.
        version: Number of the version; None if nothing was pushed.
        path: Folder of the version; None if nothing was pushed.
        reason: ``blessed``, or why nothing, no new version, or the fallback was pushed.
        previous: Number of the version that was the newest before.
        environment: Environment variables that its server must be started with.
        fallback: True if the parent was pushed instead of the model.
        blessing: The reason of the blessing.
        warm_up: The recorded warm-up requests, or why there are none.
        labels: The labels written into a LiteRT file, or why there are none.
        history: The file with the metrics of this run.
        trained: The stored Keras model that the next run may start from.
        recipe: The folder of the stored recipe.
        registrations: What was written elsewhere about the version, by target (``register``).
    """

    schema_version: ClassVar[int] = 1
    pushed: bool
    destination: str
    version: int | None
    path: str | None
    layout: str
    reason: str
    previous: int | None
    model: str
    digest: str
    environment: dict[str, str]
    fallback: bool
    blessing: str
    warm_up: str | None = None
    labels: str | None = None
    history: str | None = None
    trained: str | None = None
    recipe: str | None = None
    registrations: dict[str, str] = field(default_factory=dict)
