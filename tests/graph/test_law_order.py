"""Tests of the order of laws, and of the facts that laws state in their files."""

from difflib import unified_diff
from pathlib import Path

import pytest

from tfopt.errors import ComponentError
from tfopt.graph.law_order import (
    ALL,
    FAST_MATH,
    FOLDER,
    NORMALIZING,
    OPT_IN,
    ORDER,
    ROUNDING,
    UNCHECKING,
    LawFacts,
    all_facts,
    ordered,
    read_facts,
)
from tfopt.graph.laws import laws

# The order that follows from the files: a law that is added appears here, and a law that moves is seen.
EXPECTED = [
    "strip_unused",
    "freeze_learning_phase",
    "drop_control_edges",
    "drop_assertions",
    "drop_numeric_checks",
    "drop_training_nodes",
    "drop_identity_lists",
    "fold_constants",
    "push_constants_through_enter",
    "push_constants_through_switch",
    "fold_switches",
    "fold_branches",
    "drop_idle_loops",
    "drop_dropout",
    "push_constants_into_bodies",
    "push_list_constants",
    "cancel_transposes",
    "cancel_transposes_around",
    "fuse_transposes_into_reductions",
    "cancel_lists",
    "cancel_list_slices",
    "cancel_parts",
    "cancel_shape_lists",
    "cancel_concats",
    "cancel_casts",
    "fuse_casts",
    "cancel_squeezes",
    "drop_whole_slices",
    "fuse_reshapes",
    "fuse_dilated_convs",
    "fold_static_shapes",
    "fold_reshape_sizes",
    "fold_selects",
    "drop_idle_reductions",
    "drop_neutral_fills",
    "fuse_pad_into_conv",
    "drop_idle_layout",
    "fuse_map_loops",
    "fuse_products_of_parts",
    "fuse_products_of_batch",
    "push_factors_before_products",
    "push_after_view",
    "push_before_view",
    "push_before_concat",
    "fold_scale_before",
    "fold_shift_before",
    "fold_batch_norm",
    "fold_batch_norm_before",
    "fold_scale",
    "fold_shift",
    "cancel_reshapes_around_norms",
    "fuse_layer_norms",
    "cancel_reshapes_around",
    "fold_exact_quotients",
    "fold_signs",
    "fuse_gelus",
    "fold_powers",
    "push_constants_together",
    "share_common_factors",
    "push_constants_through_inverses",
    "push_constants_over_trees",
    "push_factors_over_sums",
    "push_exact_constants",
    "drop_neutral_elements",
    "fold_absorbing_elements",
    "drop_left_neutral",
    "share_equal_nodes",
]


def test_order_follows_from_the_files():
    difference = unified_diff(EXPECTED, ORDER, "EXPECTED", "files", lineterm="", n=1)
    assert list(ORDER) == EXPECTED, "\n".join(difference)


def test_each_law_is_between_the_laws_that_it_names():
    for name, law in all_facts().items():
        position = ALL.index(name)
        assert all(ALL.index(other) < position for other in (*law.after, *([law.follows] if law.follows else [])))
        assert all(ALL.index(other) > position for other in law.before)


def test_facts_are_those_of_the_imported_laws():
    for name, law in laws().items():
        assert LawFacts(**{fact: getattr(law, fact) for fact in LawFacts.__dataclass_fields__}) == all_facts()[name]


def test_facts_of_laws():
    assert OPT_IN == ("fuse_dilated_depthwise_convs", "fuse_products_of_one_input", "fold_zero_products")
    assert {"drop_assertions", "drop_numeric_checks"} == UNCHECKING
    assert FAST_MATH == {"fold_absorbing_elements": "fold_zero_products"}
    assert {"fold_scale", "fuse_gelus"} < ROUNDING
    assert not {"fold_signs", *NORMALIZING} & ROUNDING
    changing = {name for name, law in all_facts().items() if law.changes_zero_signs}
    assert changing == {"fold_batch_norm", "fold_batch_norm_before", "fold_scale", "fold_scale_before"}


def test_reasons_name_no_position():
    """A reason such as "the same" is about a neighbour, and is wrong once a law is inserted."""
    for name, law in all_facts().items():
        for reason in (*law.after.values(), *law.before.values()):
            assert len(reason.split()) > 3, f"{name}: {reason}"
            assert not reason.startswith(("the same", "after", "before")), f"{name}: {reason}"


def test_a_law_that_is_added_moves_no_other():
    added = ordered({**all_facts(), "new": LawFacts(after={"fold_scale": "…"})})
    assert [name for name in added if name != "new"] == list(ALL)
    assert added.index("new") > added.index("fold_scale")
    assert added.index("new") < added.index("cancel_reshapes_around_norms")


def test_a_law_is_next_to_the_last_law_that_it_follows():
    facts = {
        "first": LawFacts(),
        "b": LawFacts(follows="first"),
        "a": LawFacts(after={"first": "…"}),
        "alone": LawFacts(after={"first": "…"}),
        "after_b": LawFacts(follows="b"),
        "joined": LawFacts(after={"a": "…", "b": "…"}),
        "early": LawFacts(follows="first", before={"alone": "…"}),
    }
    assert ordered(facts) == ("first", "a", "early", "alone", "b", "after_b", "joined")
    assert ordered(dict(reversed(facts.items()))) == ordered(facts)


def test_unknown_law_is_refused():
    for facts in (
        LawFacts(after={"fold_scal": "…"}),
        LawFacts(before={"fold_scal": "…"}),
        LawFacts(follows="fold_scal"),
    ):
        with pytest.raises(ComponentError, match=r"'fold_scal' in the law new[^`]*fold_scale"):
            ordered({**all_facts(), "new": facts})


def test_laws_that_follow_each_other_are_refused():
    facts = {"first": LawFacts(), "c": LawFacts(after={"b": "…"}), "a": LawFacts(after={"c": "…"})}
    facts["b"] = LawFacts(follows="first", after={"a": "…"})
    facts["d"] = LawFacts(follows="c")
    with pytest.raises(ComponentError, match="follow each other: a > c > b > a"):
        ordered(facts)
    with pytest.raises(ComponentError, match="follow each other: fold_shift > fold_scale > new > fold_shift"):
        ordered({**all_facts(), "new": LawFacts(after={"fold_shift": "…"}, before={"fold_scale": "…"})})


def test_law_without_a_position_is_refused():
    with pytest.raises(ComponentError, match="follow no other: strip_unused, new"):
        ordered({**all_facts(), "new": LawFacts(before={"fold_scale": "…"})})


def test_facts_are_literals_in_the_last_statement(tmp_path: Path):
    law = tmp_path / "new.py"
    law.write_text('import missing\n\nLAW = WholeGraphLaw(run, requires=NEEDS, rounds=True, after={"a": "b"})\n')
    assert read_facts(law) == LawFacts(rounds=True, after={"a": "b"})
    law.write_text("\nLAW = WholeGraphLaw(run, after=AFTER)\n")
    with pytest.raises(ComponentError, match=r"after=AFTER in new\.py"):
        read_facts(law)
    law.write_text('"""A law."""\n')
    with pytest.raises(ComponentError, match=r"new\.py without a law"):
        read_facts(law)


def test_every_file_of_the_folder_is_a_law():
    assert set(all_facts()) == set(laws()) == {file.stem for file in FOLDER.glob("*.py")} - {"__init__"}
