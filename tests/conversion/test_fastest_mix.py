"""Test the search for the fastest mix: where it begins, which steps it takes, and what it ends with."""

import math
import time
from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest

from tfopt.conversion.mixes import fastest_mix
from tfopt.conversion.mixes.fastest_mix import call_seconds, is_fastest, minimize_latency
from tfopt.conversion.mixes.mixed_precision import BITS, Layer, MixedModel
from tfopt.errors import ComponentError

KINDS = ("int4", "int8", "float32")
# By kind: the noise that a layer adds, and the seconds that it takes.
NOISE = {
    "first": {"int4": 0.5, "int8": 0.2, "float32": 0.0},
    "wide": {"int4": 0.4, "int8": 0.19, "float32": 0.0},
    "last": {"int4": 0.3, "int8": 0.01, "float32": 0.0},
}
SECONDS = {
    "first": {"int4": 3.0, "int8": 1.0, "float32": 4.0},
    "wide": {"int4": 9.0, "int8": 4.0, "float32": 40.0},
    "last": {"int4": 0.9, "int8": 0.8, "float32": 10.0},
}


class Timed(MixedModel[Mapping[str, str]]):
    """Layers in a chain; a file has the kind of each layer, and neighbors of different kinds cost a conversion."""

    by_bytes = True

    def __init__(self, seconds=SECONDS, conversion: float = 0.0) -> None:
        self.seconds, self.conversion = seconds, conversion
        self.noise = NOISE
        self.kinds = dict.fromkeys(NOISE, KINDS)

    @property
    def layers(self):
        names = list(NOISE)
        return [Layer([names[i - 1]] if i else ["input"], name, self.kinds[name], 8) for i, name in enumerate(names)]

    def quantize(self, kinds, lowest=None):
        return {name: kinds.get(name, lowest or "int4") for name in NOISE}

    def measure_noise(self, file):
        return dict(zip(NOISE, np.cumsum([self.noise[name][kind] for name, kind in file.items()]), strict=True))

    def count_bytes(self, file):
        return sum(BITS[kind] for kind in file.values())

    def measure_seconds(self, files):
        changes = [sum(a != b for a, b in zip([*file.values()], [*file.values()][1:], strict=False)) for file in files]
        calls = [sum(self.seconds[name][kind] for name, kind in file.items()) for file in files]
        return [call + self.conversion * change for call, change in zip(calls, changes, strict=True)]

    def degradation(self, file) -> float:
        return sum(self.noise[name][kind] for name, kind in file.items())


@pytest.mark.parametrize(
    ("limit", "kinds"),
    [
        (0.41, ["int8", "int8", "int8"]),  # the fastest kind is enough, although a lower one has fewer bytes
        (0.25, ["float32", "int8", "int8"]),  # 0.2 for 3 seconds, before 0.19 for 36 and 0.01 for 9
        (0.05, ["float32", "float32", "int8"]),
    ],
)
def test_the_search_begins_with_the_fastest_kind_and_removes_most_noise_for_each_second(limit, kinds):
    model = Timed()
    file, facts = minimize_latency(model, limit, model.degradation)
    assert list(file.values()) == kinds
    assert facts["degradation"] == pytest.approx(model.degradation(file)) and facts["degradation"] <= limit
    assert facts["raised"] == file  # none is in int4
    assert facts["left_in_float"] == [name for name, kind in file.items() if kind == "float32"]
    is_mix = limit < 0.4
    # The mix from int8 is slower than all layers in int4, from which the search ends with the same mix.
    mixes = ["mix from int8", "mix from int4"][: is_mix + (limit == 0.05)]
    of_mix = dict.fromkeys(mixes, pytest.approx(1e3 * model.measure_seconds([file])[0]))
    timed = facts["latency"]
    assert timed["milliseconds"] == {"int4": 12900, "int8": 5800, "float32": 54000, **of_mix}
    assert timed["used"] == ("mix from int8" if is_mix else "int8")
    assert timed["timed_steps"] == (3 if is_mix else 0) + (6 if limit == 0.05 else 0)


@pytest.mark.parametrize(
    ("kind", "expected"), [("int4", False), ("int8", True), ("float32", False), ("dynamic", False)]
)
def test_the_fastest_kind_is_that_of_the_fastest_whole_file(kind, expected):
    assert is_fastest(Timed(), kind) is expected


def test_of_kinds_that_are_about_as_fast_the_lowest_one_is_used():
    tied = Timed({name: {"int4": 9.0, "int8": 1.02, "float32": 1.0} for name in NOISE})
    file, facts = minimize_latency(tied, 0.41, tied.degradation)
    assert set(file.values()) == {"int8"} and facts["latency"]["used"] == "int8"
    slower = Timed({name: {"int4": 9.0, "int8": 1.04, "float32": 1.0} for name in NOISE})
    assert set(minimize_latency(slower, 0.41, slower.degradation)[0].values()) == {"float32"}


def test_a_step_costs_what_it_adds_to_a_call():
    model = Timed(SECONDS | {"last": {"int4": 0.9, "int8": 0.8, "float32": 0.9}})
    file, _ = minimize_latency(model, 0.395, model.degradation)  # 0.01 for 0.1 seconds, before 0.2 for 3
    assert list(file.values()) == ["int8", "int8", "float32"]


def test_a_mix_that_its_conversions_make_slower_than_a_whole_file_is_not_used():
    cheap = {name: {"int4": 3.0, "int8": 1.0, "float32": 2.0} for name in NOISE}
    model = Timed(cheap, conversion=5.0)  # one change of kinds costs more than all layers in float
    file, facts = minimize_latency(model, 0.25, model.degradation)
    assert set(file.values()) == {"float32"} and facts["latency"]["used"] == "float32"
    assert facts["degradation"] == 0 and facts["left_in_float"] == list(NOISE)
    assert facts["tried"][-1] == {"steps": 0, "bytes": 96, "degradation": 0}  # for the interval of the degradation
    assert "3 forms" in facts["degradation_note"]
    faster = Timed(cheap)
    file, facts = minimize_latency(faster, 0.25, faster.degradation)
    assert list(file.values()).count("float32") == 1 and facts["latency"]["used"] == "mix from int8"


def test_the_search_is_repeated_from_a_kind_that_is_faster_than_the_mix():
    """From int8, the fastest kind, one layer must become slow; from int4 it need not."""
    model = Timed({name: {"int4": 1.5, "int8": 1.0, "float32": 30.0} for name in NOISE})
    model.noise = NOISE | {"wide": {"int4": 0.1, "int8": 0.3, "float32": 0.0}}
    file, facts = minimize_latency(model, 0.32, model.degradation)
    assert file == {"first": "int8", "wide": "int4", "last": "int8"}
    assert facts["latency"]["used"] == "mix from int4" and facts["degradation"] == pytest.approx(0.31)
    assert set(facts["latency"]["milliseconds"]) == {*KINDS, "mix from int8", "mix from int4"}
    begun = [form["degradation"] for form in facts["tried"] if form["steps"] == 0]
    assert begun == pytest.approx([0.51, 0.9])  # both searches are reported
    assert facts["raised"] == {"first": "int8", "last": "int8"} and facts["left_in_float"] == []


def test_a_mix_that_is_hardly_faster_does_not_replace_another():
    model = Timed({name: {"int4": 3.0, "int8": 1.0, "float32": 2.0} for name in NOISE}, conversion=1.9)
    file, facts = minimize_latency(model, 0.25, model.degradation)  # 5.9 seconds, and 6 in float32
    assert facts["latency"]["used"] == "mix from int8" and list(file.values()).count("float32") == 1


def test_layers_without_a_kind_have_the_next_higher_one():
    model = Timed()
    model.kinds |= {"wide": ("int8", "float32")}
    assert model.quantize(fastest_mix._forms_of_one_kind(model)["int4"])["wide"] == "int8"
    assert model.quantize(fastest_mix._forms_of_one_kind(model)["float32"])["wide"] == "float32"


def test_without_time_for_all_steps_the_others_cost_their_mean(monkeypatch):
    monkeypatch.setattr(fastest_mix, "STEPS_S", 0.0)  # one is timed
    model = Timed()
    file, facts = minimize_latency(model, 0.25, model.degradation)
    assert model.degradation(file) <= 0.25 and facts["latency"]["timed_steps"] == 1


def test_a_limit_that_float_misses_is_refused():
    with pytest.raises(ComponentError, match="degradation 1 with 3 of 3 layers left in float"):
        minimize_latency(Timed(), 0.1, lambda file: 1.0)


def test_a_kind_that_the_runtime_does_not_load_is_left_out():
    never = {name: SECONDS[name] | {"int8": math.inf} for name in NOISE}
    _, facts = minimize_latency(Timed(never), 0.25, Timed().degradation)
    assert "int8" not in facts["latency"]["milliseconds"] and facts["degradation"] <= 0.25
    none = {name: dict.fromkeys(KINDS, math.inf) for name in NOISE}
    with pytest.raises(ComponentError, match="whose files this machine cannot run"):
        minimize_latency(Timed(none), 0.25, Timed().degradation)


def test_calls_are_timed_in_turns():
    made = []

    def call(name: str, seconds: float) -> None:
        made.append(name)
        time.sleep(seconds)

    slow, fast = call_seconds([partial(call, "slow", 0.02), partial(call, "fast", 0.002)])
    assert made == ["slow", "fast"] * (len(made) // 2) and len(made) >= 2 * (1 + fastest_mix.FEWEST_CALLS)
    assert slow > 0.019 > fast
