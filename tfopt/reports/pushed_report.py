from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class PushedReport:
    """The content of ``pushed.json``: whether a model was pushed, where to, as which version, and why."""

    schema_version: ClassVar[int] = 1
    pushed: bool  # True if a model was pushed or is the newest version already
    destination: str  # the folder of versions
    version: int | None  # number of the version; None if nothing was pushed
    path: str | None  # folder of the version; None if nothing was pushed
    layout: str
    reason: str  # ``blessed``, or why nothing, no new version, or the fallback was pushed
    previous: int | None  # number of the version that was the newest before
    model: str
    digest: str
    environment: dict[str, str]  # environment variables that its server must be started with
    fallback: bool  # True if the parent was pushed instead of the model
    blessing: str  # the reason of the blessing
    canary: int | None = None  # percent of the requests that the version is for, if it is a canary
    warm_up: str | None = None  # the recorded warm-up requests, or why there are none
    labels: str | None = None  # the labels written into a LiteRT file, or why there are none
    history: str | None = None  # the file with the metrics of this run
    trained: str | None = None  # the stored Keras model that the next run may start from
    recipe: str | None = None  # the folder of the stored recipe
    # what was written elsewhere about the version, by target (``register``)
    registrations: dict[str, str] = field(default_factory=dict)
    # of tfopt and of the libraries that affect the model; empty if nothing was pushed
    versions: dict[str, str] = field(default_factory=dict)
