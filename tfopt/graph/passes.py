"""The order in which laws are tried, as data, and the run of such an order until nothing changes any more."""

from collections.abc import Sequence
from dataclasses import replace

from tfopt.errors import ComponentError, nearest
from tfopt.graph.engine import apply
from tfopt.graph.frozen import Frozen, prune_functions
from tfopt.graph.report import Report
from tfopt.graph.rewrites import laws
from tfopt.graph.rule import Rule
from tfopt.graph.view import Graph

ROUNDS = 8  # a law late in the order may make room for an early one; more than three were never seen

# Each line says why it stands where it does.
ORDER: tuple[tuple[str, str], ...] = (
    ("strip_unused", "first: what nobody reads costs every later law time, and its edges make consumers"),
    ("drop_control_edges", "before the drops, which leave a node alone that somebody waits for"),
    ("drop_training_nodes", "before everything that looks at neighbours: afterwards neighbours are neighbours"),
    ("fold_constants", "before the folds: they look for one constant where a graph computes it from several"),
    ("fold_switches", "as soon as conditions are constants: every later law then sees what is on the live side"),
    ("fold_branches", "the same for the conditions of version 2"),
    ("push_list_constants", "any time after constants are folded: it makes one of several"),
    ("cancel_transposes", "early: what stood on both sides of a pair are neighbours afterwards"),
    ("cancel_casts", "the same"),
    ("fuse_reshapes", "the same"),
    ("fuse_pad_into_conv", "any time before the layout changes; a convolution keeps its kernel"),
    ("fuse_products_of_slices", "before the folds, which then have one kernel to fold into"),
    ("fold_scale_before", "before the shift: a batch norm multiplies first, and the factor then meets the operation"),
    ("fold_shift_before", "before the folds from behind, which take up the bias it makes"),
    ("fold_batch_norm", "the larger law before its two halves"),
    ("fold_scale", "before the shift: a batch norm multiplies first, and the bias in between must follow"),
    ("fold_shift", "after the scale, whose last operation it meets"),
    ("push_constants_together", "after the folds, which have a better place for a constant next to a kernel"),
    ("drop_neutral_elements", "after all that makes constants, some of which are 0 or 1"),
    ("share_equal_nodes", "after every fold: what is shared has several consumers, and cannot be folded into"),
)

# What makes a graph plain enough for laws that look at neighbours and constants.
NORMALIZING = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants", "strip_unused")


def run(names: Sequence[str], graph: Graph, report: Report) -> int:
    """Try laws in this order, again and again until none fires, and return how often one did.

    Args:
        names: Of laws.
        graph: Is changed.
        report: Is told what fired and what was refused.
    """
    total = 0
    for _ in range(ROUNDS):
        fired = sum(run_one(name, graph, report) for name in names)
        total += fired
        if not fired:
            break
    report.forget_gone(graph.nodes)
    return total


def view(frozen: Frozen) -> Graph:
    """The graph of a frozen model, which keeps what the model names."""
    fed = {end.node for signature in frozen.signatures.values() for end in signature.inputs.values()}
    return Graph.of(frozen.graph, fed=fed, fetched=frozen.protected - fed | set(frozen.outputs))


def optimize(frozen: Frozen, names: Sequence[str], report: Report) -> Frozen:
    """Return a frozen model after laws tried in this order until none fires; see `run`."""
    graph = view(frozen)
    run(names, graph, report)
    made = graph.to_graph_def()
    prune_functions(made)
    for function in made.library.function:  # of a While or an If: what it captures are arguments there, not constants
        report.refuse("functions", function.signature.name, "the body of a function that stays is not entered")
    return replace(frozen, graph=made)


def run_one(name: str, graph: Graph, report: Report) -> int:
    """Try one law everywhere, and return how often it fired.

    Raises:
        ComponentError: When there is none of this name.
    """
    if name not in laws():
        raise ComponentError(f"pass {name!r}", "the name of a law", nearest(name, laws()))
    law = laws()[name]
    return apply({name: law}, graph, report) if isinstance(law, Rule) else law.run(graph, report)


def unmet(names: Sequence[str]) -> dict[str, list[str]]:
    """What laws of an order require that none before them ensures, by law."""
    known: set[str] = set()
    found: dict[str, list[str]] = {}
    for name in names:
        missing = [need for need in laws()[name].requires if need not in known]
        found |= {name: missing} if missing else {}
        known |= set(laws()[name].ensures)
    return found
