"""Test the comparison of a model's class names and packed columns with those of examples."""

import pytest

from tfopt.artifacts.model_card import LearnedNames, ModelCard
from tfopt.data.learned_names import check_names, find_conflict, learned_facts
from tfopt.errors import ComponentError
from tfopt.reports.examples_manifest import ExamplesManifest


def card(**learned) -> ModelCard:
    return ModelCard(learned=LearnedNames(label="label", **learned))


def manifest(**names) -> ExamplesManifest:
    return ExamplesManifest(label="label", **names)


def test_a_class_with_another_number_is_an_error_that_names_both_and_the_numbering():
    with pytest.raises(ComponentError, match="m: it learned class 1 as 'b'; in the examples it is 'c'") as error:
        check_names(card(classes=["a", "b", "c"]), manifest(classes=["a", "c"]), "label", "m")
    assert "classes=['a', 'b', 'c']" in error.value.fix


@pytest.mark.parametrize(
    ("learned", "classes", "label"),
    [
        (["a", "b", "c"], ["a", "b"], "label"),
        (["a", "b"], ["a", "b", "c"], "label"),
        (["a", "b"], ["b", "a"], "other"),
        (["a", "b"], ["b", "a"], None),
        (None, ["b", "a"], "label"),
        (["a", "b"], None, "label"),
    ],
)
def test_names_with_the_same_numbers_or_of_another_label_are_no_conflict(learned, classes, label):
    assert find_conflict(card(classes=learned), manifest(classes=classes), label) is None


def test_packed_columns_in_another_order_are_a_conflict_with_their_number():
    conflict = find_conflict(card(packed={"x": ["a", "b", "c"]}), manifest(packed={"x": ["a", "c", "b"]}), None)
    assert conflict == (
        "it learned value 1 of 'x' from column 'b'; in the examples it is column 'c' (2 values come from other columns)"
    )


def test_columns_without_names_are_not_compared():
    assert find_conflict(card(packed={"x": ["a", "b"]}), manifest(packed={"x": ["c0", "c1"]}), None) is None


def test_a_card_has_the_names_of_its_label_only():
    names = manifest(classes=["a", "b"])
    assert learned_facts(names, "label") == {"label": "label", "classes": ["a", "b"], "packed": None}
    assert learned_facts(names, "other") == {}
    assert learned_facts(ExamplesManifest(), "label") == {}
