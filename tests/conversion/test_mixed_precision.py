"""Test the search for a mix of precisions: ranking by noise, the number of steps, the interval."""

import numpy as np
import pytest

from tfopt.conversion.mixes.mixed_precision import (
    Layer,
    MixedModel,
    bound_degradation,
    compare_tensors,
    limit_degradation,
    rank_promotions,
)
from tfopt.conversion.mixes.sensitivity_table import Kernel, SensitivityTable
from tfopt.errors import ComponentError
from tfopt.reports.sensitivity_report import LayerSensitivity, Loss, MixedWeights, SensitivityReport


class Chain(MixedModel[frozenset[str]]):
    """A chain of layers in int8, each with its noise; a file is the set of its layers in float."""

    def __init__(self, noise: dict[str, float]) -> None:
        self.noise = noise
        self.by_bytes = False

    @property
    def layers(self):
        names = list(self.noise)
        return [
            Layer([names[i - 1]] if i else ["input"], name, ("int8", "float32"), 8, Kernel(8, float(i + 1), 1.0))
            for i, name in enumerate(names)
        ]

    def quantize(self, kinds, lowest=None):
        return frozenset(kinds)

    def measure_noise(self, file):
        return dict(zip(self.noise, np.cumsum(list(self.noise.values())), strict=True))

    def count_bytes(self, file):
        return 100 + 3 * len(file)

    def measure_seconds(self, files):
        return [1.0 for _ in files]

    def degradation(self, file) -> float:
        return sum(noise for name, noise in self.noise.items() if name not in file)


NOISE = {f"layer_{n}": noise for n, noise in enumerate([0.01, 0.3, 0.02, 0.2, 0.05, 0.1, 0.0, 0.03, 0.005, 0.004])}
BY_NOISE = [name for name, _ in sorted(NOISE.items(), key=lambda item: -item[1])]


def test_the_layers_that_add_most_noise_come_first():
    assert [name for name, _ in rank_promotions(Chain(NOISE))] == BY_NOISE


@pytest.mark.parametrize("needed", [0, 1, 2, 3, 5])
def test_the_fewest_layers_that_meet_the_limit_are_left_in_float(needed):
    model = Chain(NOISE)
    limit = model.degradation(frozenset(BY_NOISE[:needed])) + 1e-9
    file, facts = limit_degradation(model, limit, model.degradation, mixed=False)
    assert file == set(BY_NOISE[:needed]) == set(facts["left_in_float"])
    assert facts["degradation"] == pytest.approx(limit) and facts["raised"] == dict.fromkeys(file, "float32")
    assert max(form["degradation"] for form in facts["tried"]) == pytest.approx(sum(NOISE.values()))
    assert [form["bytes"] for form in facts["tried"]] == [100 + 3 * form["steps"] for form in facts["tried"]]
    assert ("degradation_note" in facts) is (needed > 0)


def test_at_most_half_of_the_layers_are_left_in_float_unless_it_is_a_mix():
    model = Chain(NOISE)
    limit = model.degradation(frozenset(BY_NOISE[:6])) + 1e-9
    with pytest.raises(ComponentError, match="with 5 of 10 layers left in float"):
        limit_degradation(model, limit, model.degradation, mixed=False)
    file, _ = limit_degradation(model, limit, model.degradation, mixed=True)
    assert file == set(BY_NOISE[:6])


def sensitivities(missing: int = 0, factor: float = 100.0) -> SensitivityTable:
    """Return the table of the chain, without the last layers, in another unit, and mixes with their degradation."""
    layers = [
        LayerSensitivity(
            name, "MatMul", 8, float(i + 1), 1.0, {"int8": Loss(factor * noise / 2)}, {"int8": Loss(factor * noise / 2)}
        )
        for i, (name, noise) in enumerate(NOISE.items())
    ]
    mixes = [MixedWeights(factor * value, factor * value, value) for value in np.linspace(0, 1, 101).tolist()]
    facts = {"model": "chain", "digest": "", "examples": "", "signature": "", "inputs": "", "records": 1}
    measured = {"divergence": "", "task": None, "seconds": 1.0, "reused": 0, "mixes": mixes, "not_measured": {}}
    return SensitivityTable(SensitivityReport(**facts, **measured, layers=layers[: len(layers) - missing]))


@pytest.mark.parametrize("missing", [0, 5])
def test_a_search_with_sensitivities_begins_at_the_predicted_steps(missing):
    model = Chain(NOISE)
    limit = model.degradation(frozenset(BY_NOISE[:4])) + 0.004  # between two measured mixes
    file, facts = limit_degradation(model, limit, model.degradation, mixed=True, sensitivities=sensitivities(missing))
    assert file == set(BY_NOISE[:4])
    assert facts["sensitivities"] == {"layers": 10 - missing, "first_steps": 4}
    assert [form["steps"] for form in facts["tried"]] == [0, 4, 3]
    _, without = limit_degradation(model, limit, model.degradation, mixed=True)
    assert [form["steps"] for form in without["tried"]] == [0, 1, 2, 4, 3]


def test_a_wrong_prediction_costs_files_but_the_limit_is_met():
    model = Chain(NOISE)
    limit = model.degradation(frozenset(BY_NOISE[:4])) + 1e-9
    for limit_of_table in (0.001, 0.6):
        table = sensitivities()
        table.predict_sum = lambda limit, value=100 * limit_of_table: value
        file, _ = limit_degradation(model, limit, model.degradation, mixed=True, sensitivities=table)
        assert file == set(BY_NOISE[:4])


def test_the_noise_is_that_of_all_records_together():
    records = [({"a": np.float32([3, 4]), "b": np.float32([1])}, {"a": np.float32([[3], [2]])})] * 2
    assert compare_tensors([*records, ({"a": np.float32([5, 5])}, {"a": np.float32([5, 5])})]) == {"a": 8 / 100}


def test_conditions_and_indices_have_no_noise():
    values = {"condition": np.array([True, False]), "index": np.array([1, 2])}
    assert compare_tensors([(values, {"condition": np.array([False, False]), "index": np.array([1, 3])})]) == {}


def test_the_interval_of_the_degradation_holds_for_all_forms():
    outputs = {"y": {"agreement": 255 / 256, "records": 256}, "z": {"agreement": 1.0, "records": 256}}
    facts = {"tried": [{}], "verified": {"outputs": outputs}, "degradation": 1 / 256}
    interval = bound_degradation(facts)["degradation_interval"]
    assert interval == pytest.approx([1 - 0.975 ** (1 / 256), 0.021570890352533], rel=1e-7)  # Clopper and Pearson
    wider = bound_degradation({**facts, "tried": [{}] * 5})["degradation_interval"]
    assert wider[0] == pytest.approx(1 - 0.995 ** (1 / 256)) and wider[1] > interval[1]
    one_by_one = {**facts, "left_in_float": list("abcd")}  # by NNCF, which does not list what it tried
    del one_by_one["tried"]
    assert bound_degradation(one_by_one)["degradation_interval"] == wider
    assert bound_degradation({"verified": {"outputs": outputs}}) == {}
    outputs["y"]["agreement"] = outputs["z"]["agreement"] = None
    assert bound_degradation(facts) == {}


def test_a_step_that_leaves_the_weights_as_they_are_costs_hardly_anything():
    """Of activations in 8 bits: dynamic has the weights of int8."""

    class Weights(Chain):
        @property
        def layers(self):
            kinds = ("int8", "dynamic", "float32")
            return [Layer([], name, kinds, weights) for name, weights in (("wide", 1000), ("narrow", 10))]

        def measure_noise(self, file):
            return dict.fromkeys(self.noise, {"int8": 0.5, "dynamic": 0.4}[file])

        def quantize(self, kinds, lowest=None):
            return lowest

    model = Weights({"wide": 0.0, "narrow": 0.0})
    model.by_bytes = True
    steps = rank_promotions(model)
    assert steps[:2] == [("narrow", "dynamic"), ("wide", "dynamic")] and len(steps) == 4
