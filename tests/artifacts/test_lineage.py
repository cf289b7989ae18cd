import json

import pytest

from tfopt.artifacts import CARD, KerasModel, Model
from tfopt.artifacts.lineage import ORDER, check_order
from tfopt.component import Input
from tfopt.dag.tracing import Steps, trace
from tfopt.errors import ComponentError


@pytest.mark.parametrize(
    ("done", "step"),
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
    ],
)
def test_a_step_that_would_undo_an_earlier_one_is_refused_with_the_order(tmp_path, done, step):
    with pytest.raises(ComponentError) as refusal:
        check_order(model(tmp_path, done), step)
    assert f"{step} after " in refusal.value.received
    assert ", ".join(ORDER) in refusal.value.expected
    assert "from before" in refusal.value.fix


def test_every_step_may_follow_those_before_it_and_any_may_be_left_out(tmp_path):
    for index, step in enumerate(ORDER):
        check_order(model(tmp_path, ["train", *ORDER[:index]]), step)
        check_order(model(tmp_path, []), step)
    check_order(model(tmp_path, ["prune"]), "fold_batch_norm")
    check_order(model(tmp_path, ["prune", "cluster"]), "export_tflite")


def test_removing_channels_leaves_nothing_that_could_be_undone(tmp_path):
    check_order(model(tmp_path, ["prune"], {"pattern": "channel"}), "prune")


def test_the_fix_says_when_the_earlier_step_should_come_later(tmp_path):
    with pytest.raises(ComponentError, match="let cluster follow"):
        check_order(model(tmp_path, ["cluster"]), "prune")


def test_an_illegal_order_is_refused_when_the_dag_is_built():
    def twice(steps: Steps, model: Input[KerasModel]) -> None:
        """Prune a pruned model."""
        pruned = steps.prune(model=model).outputs["pruned"]
        steps.prune(id="another", model=model)
        steps.prune(id="again", model=pruned)

    with pytest.raises(ComponentError, match="again: prune after prune"):
        trace(twice)


def model(folder, done, parameters=None):
    """A card as the framework writes it: the last step itself, the ones before it in the lineage."""
    steps = [{"name": name, "digest": "0", "component": name, "parameters": parameters or {}} for name in done]
    lineage = [{"name": "my_model", "digest": "0", "component": None, "parameters": None}, *steps[:-1]]
    card = {"name": "m", "lineage": lineage, **(steps[-1] if steps else {})}
    (folder / CARD).write_text(json.dumps(card))
    return Model(folder)
