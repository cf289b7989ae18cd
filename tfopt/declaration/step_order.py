"""Check the order of steps: reject a step that would undo the effect of an earlier one.

The runner of components checks the lineage of a step's input, and a DAG is checked when it is built.
"""

from collections.abc import Sequence
from graphlib import TopologicalSorter

from tfopt.artifacts import LineageStep, Model
from tfopt.declaration.component import Component
from tfopt.declaration.library import component_names, components, find
from tfopt.errors import ComponentError


def check_order(model: Model, component: Component) -> None:
    """Raise ComponentError if a component would undo the effect of an earlier step in the model's lineage."""
    if component.not_after:  # otherwise the model card is not read
        check_steps(model.name, applied_steps(model), component)


def check_steps(name: str, done: Sequence[LineageStep], component: Component) -> None:
    """Raise ComponentError if a step would undo the effect of an earlier one."""
    step = component.name
    if component.idempotent and any(previous.component == step for previous in done):
        return
    for effect, reason in component.not_after.items():
        earlier = next((previous.component for previous in done if effect_of(previous) == effect), None)
        if earlier:
            order = legal_order()
            swap = earlier in order and step in order[: order.index(earlier)]
            fix = f"give {step} the model from before {earlier}" + (f", and let {earlier} follow" if swap else "")
            raise ComponentError(f"{name}: {step} after {earlier}", f"the order {', '.join(order)}: {reason}", fix)


def applied_steps(model: Model) -> list[LineageStep]:
    """Return the steps by which components made the model, first to last."""
    return [step for step in (*model.card.lineage, model.card.step) if step.component]


def find_declaration(step: LineageStep) -> Component | None:
    """Return the component of tfopt that made a step; None for a component of others."""
    return find(step.component) if step.component in component_names() else None


def effect_of(step: LineageStep) -> str | None:
    """Return the effect of a step on the weights: zeros, shared weights, quantization; None if it has none of them.

    >>> effect_of(LineageStep(component="prune", parameters={"pattern": "channel"}))
    """
    component = find_declaration(step)
    return step.effect or (component.effect_with(step.parameters or {}) if component else None)


def legal_order() -> list[str]:
    """Return the components that have to run in an order, and whose models the next ones take, first to last."""
    leaving = [component for component in components().values() if component.effect]
    chain = [component for component in components().values() if component.not_after and _fits(component, leaving[0])]
    before = {
        later.name: [
            component.name
            for component in chain
            if later.effect and later.effect.name in component.not_after
            if not (component.effect and component.effect.name in later.not_after)
        ]
        for later in chain
    }
    return list(TopologicalSorter(before).static_order())


def _fits(component: Component, later: Component) -> bool:
    """Return True if a model that the later component takes is still one that it takes after this component."""
    input_type = next(iter(later.inputs.values())).type
    return issubclass(next(iter(component.outputs.values())).kind(input_type), input_type)
