from dataclasses import MISSING
from typing import Annotated, Literal

import pytest

from tfopt.declaration.library import components
from tfopt.declaration.parameters import Between, DeclaredArgument, Names, Reads
from tfopt.errors import ComponentError


def parameter(hint, default=None, required=False):
    return DeclaredArgument("p", hint, MISSING if required else default, "").read()


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [0, -3], [True, 1.0, "1", None]),
        (float, [0.5, 2], [True, "0.5", None]),
        (bool, [True, False], [0, "true", None]),
        (str, ["", "ä b"], [1, None]),
        (list[str], [[], ["a"]], ["a", [1], ("a",), None]),
        (Literal["a", "b"], ["a", "b"], ["c", "A", 1, None]),
        (Annotated[float, Between(0, 1)], [0, 1, 0.5], [-0.01, 1.01, float("nan")]),
        (Annotated[float, Between(0.1)], [0.1, 1e300], [0.0, float("inf"), float("nan")]),
        (Annotated[int, Between(2)], [2, 10**12], [1, 2.0]),
        (Annotated[int, Between(None, 2)], [2, -5], [3]),
        (int | None, [None, 3], ["3"]),
        (Annotated[int, Between(1)] | None, [None, 3], [0]),
    ],
)
def test_a_value_is_taken_or_refused_by_its_declared_type(hint, good, bad):
    for value in good:
        assert parameter(hint).check(value, "owner") == value
    for value in bad:
        with pytest.raises(ComponentError) as refusal:
            parameter(hint).check(value, "owner")
        assert refusal.value.received == f"owner: p={value!r}"


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (int, "3", 3),
        (float, "3", 3.0),
        (float, "1e-3", 0.001),
        (bool, "True", True),
        (bool, "false", False),
        (str, "3", "3"),
        (list[str], "one", ["one"]),
        (list[str], '["one", "two"]', ["one", "two"]),
        (int | None, "null", None),
    ],
)
def test_a_value_is_read_from_text(hint, text, value):
    assert parameter(hint).parse(text, "owner") == value


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        *((hint, text) for hint in (int, float, bool) for text in ("[" * 100_000, "{" * 100_000, "\udc80", "9" * 5000)),
        (int, str(2**63)),
        (int, "-" + "9" * 400),
        (Annotated[int, Between(1)], "1" * 400),
        (Annotated[float, Between(1)], "1" * 400),
        (Annotated[float, Between(1)], "1e999"),
        (Annotated[list[str], Reads(lambda texts: [int(text) for text in texts], ("1",))], "9" * 5000),
        (Annotated[list[str], Reads(lambda texts: [float(int(text)) for text in texts], ("1",))], "9" * 4000),
        (Annotated[list[str], Reads(lambda texts: [int(text) for text in texts], ("1",))], "[" * 100_000),
    ],
)
def test_numbers_and_lists_without_measure_are_refused_in_a_few_words(hint, text):
    with pytest.raises(ComponentError, match="owner: p") as refusal:
        parameter(hint).parse(text, "owner")
    assert len(str(refusal.value)) < 1500


def test_the_largest_integers_are_taken():
    for value in (2**63 - 1, -(2**63)):
        assert parameter(int).parse(str(value), "owner") == value
    assert parameter(list[str]).parse("[" * 100_000, "owner") == ["[" * 100_000]


def test_text_in_a_small_language_is_read_when_it_is_given():
    def parse(text):
        if text != "good":
            raise ComponentError(f"{text} text", "good text", "write good")

    hint = Annotated[str, Reads(parse, "good")]
    assert parameter(hint).check("good", "owner") == "good"
    assert parameter(hint).sample() == "good"
    assert parameter(hint | None).check(None, "owner") is None
    with pytest.raises(ComponentError) as refusal:
        parameter(hint).check("bad", "owner")
    assert (refusal.value.received, refusal.value.fix) == ("owner: p: bad text", "write good")


def test_a_mistyped_choice_is_answered_with_the_nearest():
    with pytest.raises(ComponentError, match="did you mean int8"):
        parameter(Literal["int8", "float32"]).check("int88", "owner")


@pytest.mark.parametrize("hint", [dict, list[int], tuple[int, ...], int | str, bytes])
def test_other_types_are_refused_where_they_are_declared(hint):
    with pytest.raises(TypeError, match="parameter p"):
        parameter(hint)


def test_the_schema_carries_range_choices_and_default():
    assert parameter(Annotated[float, Between(0, 1)], 0.5).schema() == {
        "type": "number",
        "description": "",
        "minimum": 0,
        "maximum": 1,
        "default": 0.5,
    }
    assert parameter(Literal["a", "b"], "a").schema()["enum"] == ["a", "b"]


@pytest.mark.parametrize("texts", [["a,b", "c"], ["a", "b", "c"], ("a", "b", "c"), ["a, b,c"], ["a,b,c,"]])
def test_names_are_separate_texts_or_have_commas_in_between(texts):
    names = DeclaredArgument("inputs", Annotated[tuple[str, ...], Names()], (), "").read()
    assert names.check(texts, "optimize") == ["a", "b", "c"]
    both = DeclaredArgument("sizes", Annotated[tuple[str, ...], Reads(_read, ("a",)), Names()], (), "").read()
    assert (both.reads.example, both.parse("a,b", "optimize")) == (("a",), ["a", "b"])
    plain = DeclaredArgument("files", tuple[str, ...], (), "").read()
    assert plain.parse("a,b", "prepare") == ["a,b"]


def _read(texts):
    assert "," not in "".join(texts)


NAMES = {
    "optimize_graph": {"inputs", "outputs", "passes"},
    "quantize": {"keep_float"},
    "cast_precision": {"keep"},
    "quantize_graph": {"operations"},
    "prune": {"layers"},
    "cluster": {"layers"},
    "compile_xla": {"batch_sizes", "sequence_buckets"},
    "benchmark": {"batch_sizes"},
    "evaluate": {"metrics", "slices"},
    "tune_recipe": {"metrics", "formats", "batch_sizes", "slices"},
    "compare_backbones": {"backbones", "formats"},
    "prepare_examples": {"splits"},
    "convert_tensorrt": {"shapes"},
}


def test_lists_of_names_take_commas_in_every_component():
    taking = {
        one.name: {key for key, parameter in one.parameters.items() if parameter.names} for one in components().values()
    }
    assert {name: keys for name, keys in taking.items() if keys} == NAMES


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", ["1"]),
        ("1.50", ["1.50"]),
        ("1,32", ["1", "32"]),
        ('["1", "32"]', ["1", "32"]),
        ("[1, 32]", ["1", "32"]),
        ("true", ["true"]),
        ("all", ["all"]),
        ("[]", []),
    ],
)
def test_a_list_is_parsed_from_json_or_from_names_with_commas(text, value):
    assert parameter(Annotated[list[str], Names()]).parse(text, "c") == value


@pytest.mark.parametrize("text", ["null", "[true]", "[[1]]", '{"a": 1}'])
def test_json_that_is_no_list_of_texts_or_numbers_is_refused(text):
    with pytest.raises(ComponentError, match="expected: list of strings"):
        parameter(list[str], ["a"], False).parse(text, "c")


def test_the_hint_of_a_refused_list_can_be_passed_on_the_command_line():
    with pytest.raises(ComponentError, match=r"""how to fix: pass p='\["1", "32"\]' \(the default\)"""):
        parameter(list[str], ["1", "32"], False).parse("{}", "c")
