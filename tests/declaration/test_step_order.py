"""Test the checks of the order of steps."""

import json

import pytest

from tfopt.artifacts import CARD, KerasModel, Model
from tfopt.component import Effect, Input, Output, component, find
from tfopt.dag.tracing import Steps, trace
from tfopt.declaration import step_order
from tfopt.errors import ComponentError

ORDER = step_order.legal_order()


def check_order(model: Model, step: str) -> None:
    step_order.check_order(model, find(step))


@pytest.mark.parametrize(
    ("previous_steps", "step"),
    [
        (["prune"], "prune"),
        (["cluster"], "prune"),
        (["quantize"], "prune"),
        (["cluster"], "cluster"),
        (["prune", "quantize"], "cluster"),
        (["quantize"], "quantize"),
        (["prune", "cluster", "quantize", "fold_batch_norm"], "quantize"),
        (["cluster"], "fold_batch_norm"),
        (["quantize"], "fold_batch_norm"),
        (["quantize"], "cast_precision"),
        (["quantize"], "quantize_graph"),
    ],
)
def test_check_order_rejects_a_step_that_undoes_an_earlier_one(tmp_path, previous_steps, step):
    with pytest.raises(ComponentError) as refusal:
        check_order(model(tmp_path, previous_steps), step)
    assert f"{step} after " in refusal.value.received
    assert ", ".join(ORDER) in refusal.value.expected
    assert "from before" in refusal.value.fix


def test_check_order_accepts_the_legal_order_with_omissions(tmp_path):
    for index, step in enumerate(ORDER):
        check_order(model(tmp_path, ["train", *ORDER[:index]]), step)
        check_order(model(tmp_path, []), step)
    check_order(model(tmp_path, ["prune"]), "fold_batch_norm")
    check_order(model(tmp_path, ["prune", "cluster"]), "export_tflite")


def test_a_second_fold_has_nothing_to_fold(tmp_path):
    check_order(model(tmp_path, ["fold_batch_norm", "cluster"]), "fold_batch_norm")
    with pytest.raises(ComponentError, match="cluster after cluster"):
        check_order(model(tmp_path, ["cluster", "fold_batch_norm"]), "cluster")


def test_channel_pruning_has_no_effect_to_preserve(tmp_path):
    check_order(model(tmp_path, ["prune"], {"pattern": "channel"}), "prune")


def test_the_fix_proposes_to_swap_the_steps(tmp_path):
    with pytest.raises(ComponentError, match="let cluster follow"):
        check_order(model(tmp_path, ["cluster"]), "prune")


def test_tracing_rejects_an_illegal_order():
    def twice(steps: Steps, model: Input[KerasModel]) -> None:
        """Prune a pruned model."""
        pruned = steps.prune(model=model).outputs["pruned"]
        steps.prune(id="another", model=model)
        steps.prune(id="again", model=pruned)

    with pytest.raises(ComponentError, match="again: prune after prune"):
        trace(twice)


def test_tracing_rejects_an_illegal_order_with_a_step_in_between():
    def twice(steps: Steps, model: Input[KerasModel]) -> None:
        """Prune a pruned and folded model."""
        folded = steps.fold_batch_norm(model=steps.prune(model=model).outputs["pruned"]).outputs["folded"]
        steps.prune(id="again", model=folded)

    with pytest.raises(ComponentError, match="again: prune after prune"):
        trace(twice)


def test_the_order_follows_from_the_declarations():
    assert ORDER == ["fold_batch_norm", "prune", "cluster", "quantize"]


@component(image="tf", effect=Effect("zeros", only={"kind": ["sparse"]}))
def thin(model: Input[KerasModel], thinned: Output[KerasModel], *, kind: str = "sparse") -> None:
    """Leave zeros in a model."""


@component(image="tf", not_after={"zeros": "it adds noise"})
def blur(model: Input[KerasModel], blurred: Output[KerasModel]) -> None:
    """Add noise to a model."""


def test_tracing_knows_the_effects_of_components_of_others():
    def pipeline(steps: Steps, model: Input[KerasModel]) -> None:
        """Blur models."""
        steps(blur, model=steps(thin, model=model, kind="dense").outputs["thinned"])
        steps(blur, id="wrong", model=steps(thin, model=model).outputs["thinned"])

    with pytest.raises(ComponentError, match="wrong: blur after thin"):
        trace(pipeline)


def test_a_model_card_states_the_effect_of_a_component_of_others(tmp_path):
    card = {"name": "m", "component": "thin", "parameters": {}, "lineage": []}
    (tmp_path / CARD).write_text(json.dumps(card))
    step_order.check_order(Model(tmp_path), blur)
    (tmp_path / CARD).write_text(json.dumps(card | {"effect": "zeros"}))
    with pytest.raises(ComponentError, match="blur after thin"):
        step_order.check_order(Model(tmp_path), blur)


def model(folder, previous_steps, parameters=None):
    """Write a model card like the framework: the last step itself, the previous ones in the lineage."""
    steps = [
        {"name": name, "digest": "0", "component": name, "parameters": parameters or {}} for name in previous_steps
    ]
    lineage = [{"name": "my_model", "digest": "0", "component": None, "parameters": None}, *steps[:-1]]
    card = {"name": "m", "lineage": lineage, **(steps[-1] if steps else {})}
    (folder / CARD).write_text(json.dumps(card))
    return Model(folder)
