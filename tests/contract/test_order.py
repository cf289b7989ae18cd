"""Test that every component itself refuses the orders of steps that the rules forbid, before it works."""

import json
from pathlib import Path

import pytest

from tests.contract.inputs import COMPONENTS, component_arguments
from tfopt.artifacts import CARD, FAILURE, Artifact, KerasModel, Model
from tfopt.component import Component
from tfopt.errors import ComponentError

EVERY = pytest.mark.parametrize("component", COMPONENTS.values(), ids=COMPONENTS)
CONFLICTS = {name: component.not_after for name, component in COMPONENTS.items() if component.not_after}
EFFECTS = {name: component.effect.name for name, component in COMPONENTS.items() if component.effect}
FORBIDDEN = [
    (step, earlier) for step, harmed in CONFLICTS.items() for earlier, effect in EFFECTS.items() if effect in harmed
]
READS_A_MODEL = [name for name, component in COMPONENTS.items() if "model" in component.inputs]


def test_the_rules_name_components_whose_first_input_is_a_model():
    for step in CONFLICTS:
        assert next(iter(COMPONENTS[step].inputs)) == "model"


@pytest.mark.parametrize(("step", "earlier"), FORBIDDEN)
def test_a_forbidden_order_is_refused_before_any_work(step, earlier, tmp_path, without_work):
    with pytest.raises(ComponentError) as refusal:
        run(COMPONENTS[step], made_by(tmp_path, earlier), tmp_path)
    assert f"{step} after {earlier}" in refusal.value.received
    assert "the order fold_batch_norm, prune, cluster, quantize" in refusal.value.expected
    assert f"give {step} the model from before {earlier}" in refusal.value.fix
    assert not list((tmp_path / "out").glob("*"))


@pytest.mark.parametrize("step", [step for step in CONFLICTS if "on_failure" in COMPONENTS[step].parameters])
def test_a_forbidden_order_is_a_row_of_a_run(step, tmp_path, without_work):
    (output,) = run(COMPONENTS[step], made_by(tmp_path, "quantize"), tmp_path, on_failure="row").values()
    assert f"{step} after quantize" in Model(output.path).failure
    assert (output.path / FAILURE).is_file()


@pytest.mark.parametrize("step", [name for name in READS_A_MODEL if name not in CONFLICTS])
def test_other_components_take_every_model(step, tmp_path, without_work):
    with pytest.raises(WorkBeganError):
        run(COMPONENTS[step], made_by(tmp_path, *EFFECTS), tmp_path)


class WorkBeganError(Exception):
    """Raised where a component would begin to work."""


@pytest.fixture
def without_work(monkeypatch):
    def work(**_):
        raise WorkBeganError

    for component in COMPONENTS.values():
        monkeypatch.setattr(component, "function", work)
    monkeypatch.setattr(Artifact, "open", classmethod(lambda kind, uri, metadata=None: kind(uri, metadata)))


def made_by(folder: Path, *steps: str) -> KerasModel:
    """Write a model whose card has the steps as its lineage."""
    path = folder / "model"
    path.mkdir()
    entries = [{"name": step, "digest": "0", "component": step, "parameters": {}} for step in steps]
    (path / CARD).write_text(json.dumps({"name": "model", "lineage": entries[:-1], **entries[-1]}))
    return KerasModel(path)


def run(component: Component, model: KerasModel, folder: Path, **parameters):
    """Run a component on the model, with empty files for its other inputs."""
    arguments = component_arguments(component.name, folder / "served")
    arguments.pop("on_failure", None)
    arguments |= parameters
    for port in component.inputs.values():
        file = folder / f"{port.name}.py"
        file.write_text("x = 1")
        if not port.optional:
            arguments[port.name] = model if issubclass(port.type, Model) else str(file)
    arguments |= {name: str(folder / "out" / name) for name in component.outputs}
    return component(**arguments)
