"""Check a DAG with its values against the policies of the destinations that it pushes to."""

from collections.abc import Iterable, Mapping
from typing import Any

from tfopt.artifacts.formats import FORMATS
from tfopt.dag.dag import Dag, Placeholder, Step, StepOutput
from tfopt.errors import ComponentError
from tfopt.model_store.withdrawals import served_versions
from tfopt.serving.policy import Policy, read_policies

PUSH, SELECT, REPLAY = "push_model", "select_model", "replay"
EXPORTERS = {format.exporter: format.name for format in FORMATS.values() if format.exporter}


def policies_of(dag: Dag, values: Mapping[str, Any]) -> list[Policy]:
    """Return the policies that hold for the steps that push; none for a DAG that pushes nothing."""
    pushes = [step for step in dag.steps.values() if step.component.name == PUSH]
    return [policy for push in pushes for policy in read_policies(push.value("destination", values), here=False)]


def check_policies(dag: Dag, values: Mapping[str, Any]) -> None:
    """Raise ComponentError for a rule that the run would violate; values that only the run knows are not checked."""
    dag = dag.with_sources(values)
    for policy in policies_of(dag, values):
        for step in dag.steps.values():
            if step.component.name == SELECT and (goals := step.value("goals", values)) is not None:
                policy.check_goals(step.id, goals, step.value("confidence", values))
            elif step.component.name == PUSH:
                _check_push(dag, step, policy, values)


def check_images(dag: Dag, values: Mapping[str, Any], references: Iterable[str]) -> None:
    """Raise ComponentError for an image of a step that a policy does not allow."""
    for policy in policies_of(dag, values):
        policy.check_images(sorted(set(references)))


def _check_push(dag: Dag, push: Step, policy: Policy, values: Mapping[str, Any]) -> None:
    key = push.parameters.get("signing_key")
    is_known = not isinstance(key, Placeholder) or key.parameter.name in values
    if policy.signature and is_known and not push.value("signing_key", values):
        policy.refuse("signature", f"{push.id}: no signing_key", "pass signing_key=FILE with a private key")
    if policy.serving_test and "infra_blessing" not in push.inputs:
        policy.refuse("serving_test", f"{push.id} without a serving test", "add validate_serving before it")
    test = push.inputs.get("infra_blessing")
    made_by = dag.steps[test.step].component.name if isinstance(test, StepOutput) else None
    if policy.replay and (test is None or made_by not in (None, REPLAY)) and _is_serving(push, values):
        fix = "pass recording=REQUESTS; in a pipeline of your own, the infra_blessing of replay (docs/operate.md)"
        policy.refuse("replay", f"{push.id} without a replay", fix)
    if (policy.goals or policy.min_records) and "decision" not in push.inputs:
        rule = "goals" if policy.goals else "min_records"
        policy.refuse(rule, f"{push.id} without a decision", "pass the decision of select_model")
    for wire in push.used_outputs:
        made = EXPORTERS.get(dag.steps[wire.step].component.name)
        if made and made not in policy.formats:
            fix = f"push one of {', '.join(policy.formats)}"
            policy.refuse("formats", f"{push.id} pushes the output of {wire.step}, {made}", fix)


def _is_serving(push: Step, values: Mapping[str, Any]) -> bool:
    """Return False if no version is served, which a first one could be compared with, or a store cannot be read now."""
    destination = push.value("destination", values)
    try:
        return destination is None or bool(served_versions(destination))
    except (ComponentError, NotADirectoryError):  # `push_model` reads it again
        return False
