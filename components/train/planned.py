"""What a plan says, in the place of what nobody said."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tfopt.artifacts import TrainingPlan
from tfopt.components.train.settings import Settings
from tfopt.declaration.parameters import Parameter
from tfopt.errors import ComponentError, nearest
from tfopt.measurement.machine_fingerprint import differences, fingerprint

log = logging.getLogger("tfopt")


def follow(
    plan: TrainingPlan | None, settings: Settings, declared: Mapping[str, Parameter]
) -> tuple[Settings, dict[str, Any]]:
    """Return the settings with the plan's where they have their default value, and what the card says of the plan.

    That is which of its settings those are (``planned``), and how this machine or its software is other than where it
    was measured (``planned_elsewhere``): it is followed nonetheless, with a warning.

    Args:
        plan: Of `profile_training`; None for none.
        settings: As the component was called.
        declared: The component's parameters.

    Raises:
        ComponentError: When the plan has a setting that there is not, or a value that it cannot have.
    """
    if plan is None:
        return settings, {}
    followed: dict[str, Any] = {}
    given, content = asdict(settings), plan.read()
    for name, value in content["settings"].items():
        if name not in given:
            raise ComponentError(f"plan {plan.uri}: a setting {name}", "parameters of train", nearest(name, given))
        declared[name].check(value, "plan")
        if given[name] != declared[name].default and given[name] != value:
            log.warning("the plan says %s=%s, and %s was passed: that is taken", name, value, given[name])
        else:
            followed[name] = value
    if followed:
        log.info("as planned: %s", ", ".join(f"{name}={value}" for name, value in followed.items()))
    elsewhere = _elsewhere(content)
    if elsewhere:
        log.warning("the plan may not fit this machine: %s; measure anew with profile_training", "; ".join(elsewhere))
    return replace(settings, **followed), {"planned": followed, "planned_elsewhere": elsewhere}


def _elsewhere(content: Mapping[str, Any]) -> list[str]:
    measured = content.get("environment")
    return differences(measured, fingerprint()) if measured else ["it does not say where it was measured"]
