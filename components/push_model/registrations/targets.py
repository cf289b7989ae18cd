"""Check the targets of registrations before the push, and register the version with them after it."""

import importlib.util
from collections.abc import Sequence
from types import ModuleType

from tfopt.components.push_model.registrations import kserve, mlflow, model_registry, tensorboard
from tfopt.components.push_model.registrations.pushed_version import PushedVersion
from tfopt.components.push_model.registrations.target import Target
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError, MachineError
from tfopt.processes.subprocess_call import run_in_child

# Each module has register(address, version), which may be repeated, and returns what it wrote in a few words.
MODULES: dict[str, ModuleType] = {
    "kserve": kserve,
    "mlflow": mlflow,
    "model-registry": model_registry,
    "tensorboard": tensorboard,
}
PACKAGES = {"model-registry": "model_registry", "mlflow": "mlflow", "tensorboard": "tensorboard"}
LIMIT_S = 900  # MLflow gets the model's files


def check_targets(targets: Sequence[Target], *, destination: str, format: str, layout: str, has_metrics: bool) -> None:
    """Check, before a version is added, what can be checked without the servers.

    Args:
        targets: The systems to register with.
        destination: The address of the destination, for readers elsewhere.
        format: Format of the model.
        layout: The serving layout.
        has_metrics: True if the push has a decision.

    Raises:
        ComponentError: If a registration cannot work.
        MachineError: If its package is not installed.
    """
    for target in targets:
        package = PACKAGES.get(target.kind)
        if package and not importlib.util.find_spec(package):
            raise MachineError(
                f"register={target}: no package {target.kind}", "the package", f"pip install 'tfopt[{target.kind}]'"
            )
        if target.kind == "kserve":
            kserve.check(destination, format, layout)
        if target.kind == "tensorboard" and not has_metrics:
            raise ComponentError(
                f"register={target} without a decision",
                "the metrics that TensorBoard shows",
                "pass the decision of select_model, too",
            )


def register(targets: Sequence[Target], version: PushedVersion) -> dict[str, str]:
    """Register a version with all targets, each in a child process, and return what was written, by target.

    Raises:
        ComponentError: If some fail, after all were tried. The version is complete and served.
    """
    references, failures = {}, {}
    for target in targets:
        try:
            references[str(target)] = run_in_child(
                register_with,
                target,
                version,
                doing=f"the registration with {target.kind}",
                limit_s=LIMIT_S,
            )
        except ComponentError as error:
            failures[target] = error
    if failures:
        raise ComponentError(
            f"{version.path} is pushed and complete, but not registered with "
            + "; ".join(f"{target}: {error.received}" for target, error in failures.items()),
            "; ".join(dict.fromkeys(error.expected for error in failures.values())),
            "; ".join(dict.fromkeys(error.fix for error in failures.values()))
            + "; then run push_model again: it adds no version and registers this one",
        )
    return references


def register_with(target: Target, version: PushedVersion) -> str:
    """Register a version with one target; called in a child process, because clients change the process they run in.

    Raises:
        ComponentError: If the client raises any exception.
    """
    try:
        reference: str = MODULES[target.kind].register(target.address, version)
        return reference
    except ComponentError as error:
        failure = ComponentError(error.received, error.expected, error.fix)
    except Exception as error:  # clients raise exceptions of their own, and those of their HTTP libraries
        text = f"{type(error).__name__}: {first_line(error)[:300]}"
        failure = ComponentError(
            text, f"{target.kind} that accepts the registration", "check the address and the server"
        )
    raise failure  # after the handlers, because a chained exception of a client may not be picklable
