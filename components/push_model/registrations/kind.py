"""Kinds of registrations: those of tfopt, and the entry points ``tfopt.registrations`` of other packages."""

from collections.abc import Callable
from dataclasses import dataclass

from tfopt.components.push_model.registrations.pushed_version import PushedVersion
from tfopt.declaration.extensions import Extensions


def _accept(_: object) -> None:
    """Check nothing."""


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
    """

    register: Callable[[str, PushedVersion], str]
    package: str | None = None
    check_address: Callable[[str], None] = _accept
    check_version: Callable[[PushedVersion], None] = _accept


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
