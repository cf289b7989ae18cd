"""Apply the settings of a training plan to the parameters of `train`."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tfopt.artifacts import TrainingPlan
from tfopt.components.train.parameters import Settings
from tfopt.declaration.parameters import Parameter
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.measurement.machine_fingerprint import describe_differences, fingerprint
from tfopt.reports import report_schema
from tfopt.reports.training_plan import PlannedSettings
from tfopt.value_types import JsonObject

log = logging.getLogger(__name__)


def apply_plan(
    plan: TrainingPlan | None, settings: Settings, declared: Mapping[str, Parameter]
) -> tuple[Settings, JsonObject]:
    """Return the passed settings with the plan's values where they have their default, and facts for the model card.

    The facts are the settings taken from the plan (``planned``), and the differences between this machine and the one
    where the plan was measured (``planned_elsewhere``); these only cause a warning.

    Raises:
        ComponentError: If the plan is damaged, has another version, or contains an unknown setting or an invalid value.
    """
    if plan is None:
        return settings, {}

    planned: dict[str, Any] = {}
    passed = asdict(settings)
    report = report_schema.load(PlannedSettings, plan.path / plan.file)
    for name, value in report.settings.items():
        if name not in passed:
            raise ComponentError(f"plan {plan.uri}: a setting {name}", "parameters of train", nearest(name, passed))
        declared[name].check(value, "plan")
        if passed[name] != declared[name].default and passed[name] != value:
            log.warning("the plan has %s=%s, but %s was passed and is used", name, value, passed[name])
        else:
            planned[name] = value
    if planned:
        log.info("from the plan: %s", ", ".join(f"{name}={value}" for name, value in planned.items()))
    differences = ["it does not name the machine"]
    if report.environment:
        differences = describe_differences(report.environment, fingerprint())
    if differences:
        log.warning(
            "the plan may not fit this machine: %s; measure again with profile_training", "; ".join(differences)
        )
    return replace(settings, **planned), {"planned": planned, "planned_elsewhere": differences}
