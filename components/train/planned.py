"""What a plan says, in the place of what nobody said."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tfopt.artifacts import TrainingPlan
from tfopt.components.train.settings import Settings
from tfopt.errors import ComponentError, nearest
from tfopt.parameters import Parameter

log = logging.getLogger("tfopt")


def follow(
    plan: TrainingPlan | None, settings: Settings, declared: Mapping[str, Parameter]
) -> tuple[Settings, dict[str, Any]]:
    """Return the settings with the plan's where they have their default value, and which of the plan's those are.

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
    given = asdict(settings)
    for name, value in plan.read()["settings"].items():
        if name not in given:
            raise ComponentError(f"plan {plan.uri}: a setting {name}", "parameters of train", nearest(name, given))
        declared[name].check(value, "plan")
        if given[name] != declared[name].default and given[name] != value:
            log.warning("the plan says %s=%s, and %s was passed: that is taken", name, value, given[name])
        else:
            followed[name] = value
    if followed:
        log.info("as planned: %s", ", ".join(f"{name}={value}" for name, value in followed.items()))
    return replace(settings, **followed), followed
