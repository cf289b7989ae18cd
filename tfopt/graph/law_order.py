"""Facts that laws state in their files, and the order of laws that follows from these facts.

A declaration of a pipeline reads the names of laws. The facts are therefore read from the text of the files: importing
a law imports NumPy, and TensorFlow with it.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

FOLDER = Path(__file__).with_name("laws")
LAST = "\nLAW = "  # the last statement of each file


@dataclass(frozen=True, kw_only=True)
class LawFacts:
    """Facts of a law, written as literals."""

    after: Mapping[str, str] = field(default_factory=dict)  # laws that must be tried before this one, with the reasons
    before: Mapping[str, str] = field(default_factory=dict)  # laws that must be tried after this one, with the reasons
    follows: str = ""  # a law that is tried before this one, where either order is right
    # the law is equal for real numbers, but sums of products are rounded at other places: with the largest floats as
    # inputs, an intermediate result may overflow in one form only
    rounds: bool = False
    # a negative factor goes into a sum of products, whose zeros have no sign of their own
    changes_zero_signs: bool = False
    removes_checks: bool = False  # inputs that the model refuses are accepted
    # why the law is used only if it is requested by name: it is valid under an assumption that cannot be checked in the
    # graph, or was not faster on the machine where it was measured (docs/benchmarks.md)
    opt_in: str = ""
    fast_math: bool = False  # with ``fast_math``, a law of `opt_in` is used as well, next to each law in `after`


def read_facts(file: Path) -> LawFacts:
    """Return the facts of the law in a file, which is not imported.

    Raises:
        ComponentError: If the file does not end with the law, or a fact is not a literal.
    """
    _, last, call = file.read_text().rpartition(LAST)
    if not last:
        raise ComponentError(f"{file.name} without a law", "LAW = … as last statement", "see README.md in its folder")
    names = {fact.name for fact in fields(LawFacts)}
    keywords: Iterable[ast.keyword] = getattr(ast.parse(call.strip(), mode="eval").body, "keywords", ())
    facts: dict[str, Any] = {}
    for keyword in keywords:
        if keyword.arg in names:
            try:
                facts[keyword.arg] = ast.literal_eval(keyword.value)
            except ValueError:
                received = f"{keyword.arg}={ast.unparse(keyword.value)} in {file.name}"
                raise ComponentError(received, "a literal", "write its value: the file is not imported") from None
    return LawFacts(**facts)


@cache
def all_facts() -> dict[str, LawFacts]:
    """Return the facts of every law, by the name of its file."""
    return {file.stem: read_facts(file) for file in sorted(FOLDER.glob("*.py")) if file.stem != "__init__"}


def ordered(facts: Mapping[str, LawFacts]) -> tuple[str, ...]:
    """Return the names of laws so that every law is after the laws that it must follow.

    Each law is tried as soon as possible after the last law that it follows. If several laws are possible next, the one
    that fewer laws must follow is tried first, or else the first in alphabetical order. A law that is added therefore
    moves no other law, unless it must precede some.

    Raises:
        ComponentError: If a law names an unknown one, follows none (the first law may), or laws follow each other.

    >>> ordered({"a": LawFacts(follows="b"), "b": LawFacts(), "c": LawFacts(after={"b": "…"}, before={"a": "…"})})
    ('b', 'c', 'a')
    """
    earlier = _predecessors(facts)
    ready = [name for name, names in earlier.items() if not names]
    if len(ready) > 1:
        fix = 'name in the file of each law but one a law that it follows: after={"…": "reason"}'
        raise ComponentError(f"laws that follow no other: {', '.join(ready)}", "a single one, tried first", fix)
    later = {name: _successors(name, earlier) for name in earlier}
    order: list[str] = []
    while ready:
        order.append(ready.pop())
        next_ready = [name for name, names in earlier.items() if order[-1] in names and names.issubset(order)]
        ready += sorted(next_ready, key=lambda name: (len(later[name]), name), reverse=True)
    if len(order) < len(facts):
        cycle = " > ".join(_cycle({name: names for name, names in earlier.items() if name not in order}))
        raise ComponentError(f"laws that follow each other: {cycle}", "an order", "remove one `after` or `before`")
    return tuple(order)


def _predecessors(facts: Mapping[str, LawFacts]) -> dict[str, set[str]]:
    earlier = {name: {*law.after, *([law.follows] if law.follows else [])} for name, law in facts.items()}
    for name, law in facts.items():
        for other in (*earlier[name], *law.before):
            if other not in facts:
                raise ComponentError(f"{other!r} in the law {name}", "the name of a law", nearest(other, facts))
        for other in law.before:
            earlier[other].add(name)
    return earlier


def _successors(name: str, earlier: Mapping[str, set[str]]) -> set[str]:
    """Return the laws that are tried after a law, directly or through others."""
    later: set[str] = set()
    names = {name}
    while names := {law for law, before in earlier.items() if names & before} - later:
        later |= names
    return later


def _cycle(earlier: Mapping[str, set[str]]) -> list[str]:
    """Return laws that each follow the next one, up to the first one again, among laws that follow one of these."""
    path = [min(earlier)]
    while path[-1] not in path[:-1]:
        path.append(min(name for name in earlier[path[-1]] if name in earlier))
    return path[path.index(path[-1]) :]


ALL = ordered(all_facts())
ORDER = tuple(name for name in ALL if not all_facts()[name].opt_in)
OPT_IN = tuple(name for name in ALL if all_facts()[name].opt_in)
ROUNDING = frozenset(name for name in ALL if all_facts()[name].rounds)
FAST_MATH = {other: name for name in OPT_IN if all_facts()[name].fast_math for other in all_facts()[name].after}
UNCHECKING = frozenset(name for name in ALL if all_facts()[name].removes_checks)

# Laws that normalize a graph for laws that match neighbours and constants.
NORMALIZING = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants", "strip_unused")

# Laws that fold batch norms and biases into the layers before them, for components that change layers only.
FOLDS = ("fold_reshape_sizes", "strip_unused", "push_before_view", "fold_batch_norm", "fold_scale", "fold_shift")
FOLDING = (*NORMALIZING, *FOLDS, "strip_unused", "share_equal_nodes")
