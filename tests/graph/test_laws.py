"""Tests of every law: firings, unchanged function, refusals, and no further firing in a second run."""

import functools
import importlib
import pkgutil

import pytest

import tests.graph.laws
from tests.graph.same_function import assert_same_function
from tests.graph.table import Row, answering, is_unchanged, law_applied, ops, view
from tfopt.graph.law import LocalLaw
from tfopt.graph.law_order import OPT_IN, ORDER
from tfopt.graph.laws import laws
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.rewriter import bindings

NAMES = [module.name for module in pkgutil.iter_modules(tests.graph.laws.__path__)]
TABLE = [(law, row) for law in NAMES for row in importlib.import_module(f"tests.graph.laws.{law}").TABLE]
ROWS = pytest.mark.parametrize(("law", "row"), TABLE, ids=[f"{law}: {row.name}" for law, row in TABLE])
FIRST = [(law, next(row for name, row in TABLE if name == law and row.fires)) for law in NAMES]
LOCAL = [(law, row) for law, row in FIRST if isinstance(laws()[law], LocalLaw)]
EACH = pytest.mark.parametrize(("law", "row"), LOCAL, ids=[law for law, _ in LOCAL])


def test_every_law_has_a_table_and_a_position_in_the_order():
    assert set(NAMES) == set(laws())
    assert sorted((*ORDER, *OPT_IN)) == sorted(laws())


@ROWS
def test_law_fires_as_expected_and_preserves_the_function(law: str, row: Row):
    before = row.graph_def()
    after, fired, reasons = law_applied(law, before, ("y", *row.outputs), row.unfed)
    assert fired == row.fires, reasons
    if not row.fires:
        assert not row.because or any(row.because in reason for reason in reasons), reasons
        assert ops(after) == ops(before)
    assert not set(row.gone) & set(ops(after))
    if not is_unchanged(before, after):
        graphs = (answering(graph, row.unfed) for graph in (before, after))
        is_exact = row.fires and law != "fold_zero_products"  # which is valid under an assumption
        assert_same_function(*graphs, ("y", *row.outputs), laws={law} if is_exact else None)
    again, more, _ = law_applied(law, after, ("y", *row.outputs), row.unfed)
    assert more == 0
    assert ops(again) == ops(after)


@EACH
def test_law_refuses_if_a_removed_node_has_other_readers(law: str, row: Row):
    for interior in _interior(law, row):
        _, fired, reasons = law_applied(law, row.graph_def(), ("y", *row.outputs, interior))
        assert fired < row.fires
        assert any("is an output of the graph" in reason for reason in reasons), reasons
        for control, reason_part in ((False, "consumers"), (True, "waits for")):
            before = row.graph_def()
            other = before.node.add(name="other", op="NoOp" if control else "Shape")
            other.input.append(f"^{interior}" if control else interior)
            if not control:
                other.attr["T"].CopyFrom(next(node for node in before.node if node.name == interior).attr["T"])
            _, fired, reasons = law_applied(law, before, ("y", *row.outputs))
            assert fired < row.fires
            assert any(reason_part in reason for reason in reasons), reasons


@EACH
def test_law_refuses_if_a_constant_is_not_constant(law: str, row: Row):
    for constant in _constants(law, row):
        before = row.graph_def()
        node = next(node for node in before.node if node.name == constant)
        node.op = "Placeholder"
        node.attr["shape"].shape.CopyFrom(node.attr["value"].tensor.tensor_shape)
        del node.attr["value"]
        _, fired, reasons = law_applied(law, before, ("y", *row.outputs))
        assert fired < row.fires
        assert any("is not a constant" in reason for reason in reasons), reasons


@EACH
def test_law_copies_constants_with_other_readers(law: str, row: Row):
    for constant in _constants(law, row):
        before = row.graph_def()
        node = next(node for node in before.node if node.name == constant)
        other = before.node.add(name="other", op="Identity", input=[constant])
        other.attr["T"].CopyFrom(node.attr["dtype"])
        outputs = ("y", "other", *row.outputs)
        after, fired, _ = law_applied(law, before, outputs)
        assert fired == row.fires
        assert_same_function(before, after, outputs)


@EACH
def test_law_preserves_control_edges(law: str, row: Row):
    for name in [*_interior(law, row), _matches(law, row)[0].nodes["root"].name]:
        before = row.graph_def()
        before.node.add(name="first", op="NoOp")
        next(node for node in before.node if node.name == name).input.append("^first")
        after, _, _ = law_applied(law, before, ("y", *row.outputs))
        assert any("^first" in node.input for node in after.node)
        assert_same_function(before, after, ("y", *row.outputs))


def test_bias_of_a_matrix_has_the_layout_nhwc():
    row = next(row for law, row in TABLE if law == "fold_shift" and row.name == "subtracted from it, without a bias")
    after, _, _ = law_applied("fold_shift", row.graph_def())
    assert [node.attr["data_format"].s for node in after.node if node.op == "BiasAdd"] == [b"NHWC"]


@functools.cache
def _matches(law: str, row: Row):
    graph = view(row.graph_def())
    return [
        binding
        for pattern in laws()[law].patterns
        for name in graph.nodes
        for binding in bindings(pattern, graph, Tensor(name))
        if all(graph.is_constant(binding.tensors[role]) for role in binding.constants)
    ]


def _interior(law: str, row: Row) -> set[str]:
    first = _matches(law, row)[0]
    return {node.name for role, node in first.nodes.items() if role != "root"}


def _constants(law: str, row: Row) -> set[str]:
    first = _matches(law, row)[0]
    return {first.tensors[role].node for role in first.constants}
