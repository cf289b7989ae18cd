"""A target of registrations: its kind and address, and its name there."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

KINDS = ("kserve", "mlflow", "model-registry", "tensorboard")


@dataclass(frozen=True)
class Target:
    """A system to register with.

    Attributes:
        kind: One of `KINDS`.
        address: Its address, or the file or folder to write.
    """

    kind: str
    address: str

    def __str__(self) -> str:
        """Return the target as it is passed."""
        return f"{self.kind}={self.address}"


def parse_targets(texts: Sequence[str]) -> list[Target]:
    """Parse targets of the form ``KIND=ADDRESS``.

    >>> parse_targets(["tensorboard=runs/boards"])
    [Target(kind='tensorboard', address='runs/boards')]

    Raises:
        ComponentError: If a kind is unknown, or an address is missing.
    """
    targets = []
    for text in texts:
        kind, _, address = (part.strip() for part in text.partition("="))
        if kind not in KINDS:
            raise ComponentError(f"{text!r}", "KIND=ADDRESS", nearest(kind, KINDS))
        if not address:
            raise ComponentError(f"{text!r}", "KIND=ADDRESS", f"pass the address, as in {kind}=ADDRESS")
        if kind == "model-registry" and not re.match(r"https?://[^/]", address):
            raise ComponentError(f"{text!r}", "the server's web address", f"pass {kind}=http://HOST:PORT")
        if kind == "kserve" and not address.endswith((".yaml", ".yml")):
            raise ComponentError(f"{text!r}", "the YAML file to write", f"pass {kind}=FILE.yaml, a path or an address")
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
