"""Run passes on a model and undo each pass after which the outputs differ from the parent's."""

from collections import Counter
from collections.abc import Collection
from typing import TypedDict

from tfopt.components.optimize_graph.parameters import GRAPPLER
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.graph import grappler
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law_order import ROUNDING, UNCHECKING
from tfopt.graph.law_runner import ROUNDS, names_in, optimize
from tfopt.graph.matching.zero_signs import signed_sums
from tfopt.graph.report import Report
from tfopt.graph_checks.comparison import Comparison
from tfopt.graph_checks.frozen_runtime import FrozenRuntime

RETRIES = 3  # of an optimizer that changes the outputs, each without one of the operations that it removed
PLUMBING = {"Const", "Identity", "NoOp"}
UNCHECKING_PASSES = {*UNCHECKING, GRAPPLER + grappler.UNCHECKING}


PassRow = TypedDict("PassRow", {"pass": str, "nodes": list[int], "by_op": dict[str, list[int]], "error": float})


class VerifiedPasses:
    """A model and the passes that were run on it.

    Attributes:
        model: The model after the passes so far.
        rows: One row per pass that changed the model: nodes before and after, in total and by operation, and the
            largest error of an output against the parent, as a fraction of its range.
        taken_back: The reasons why passes were undone, by name. An optimizer of Grappler is run again without rewriting
            one of the operations that it removed; its reason names the operation. No other pass is tried again.
        report: Firings and refusals of the laws.
    """

    def __init__(self, parent: Frozen, comparison: Comparison, tolerance: float, *, fast_math: bool = False) -> None:
        """Start with the parent; a pass may change outputs by at most ``tolerance``."""
        self.model, self.report = parent, Report()
        self.rows: list[PassRow] = []
        self.taken_back: dict[str, str] = {}
        self._comparison, self._tolerance, self._fast_math = comparison, tolerance, fast_math

    def run_all(self, passes: list[str]) -> None:
        """Run the passes in order, and the laws among them again until none applies."""
        for number in range(ROUNDS):
            changed = [self._try(name) for name in passes if not (number and name.startswith(GRAPPLER))]
            if not any(changed):
                break
        self.report.forget_gone(names_in(self.model.graph))

    def _try(self, name: str, preserved: Collection[str] = ()) -> bool:
        if name in self.taken_back and not preserved:
            return False
        report, child = Report(), None
        try:
            child = self._apply(name, report, preserved)
            if child is None:
                self.report.add(report)
                return False
            relative_error = self._comparison.check(
                lambda key: FrozenRuntime(child, key),
                self._tolerance,
                rounds=name in ROUNDING,
                unchecked=name in UNCHECKING_PASSES,
            )
        except ComponentError as error:
            self.taken_back[name] = error.received
            return child is not None and name.startswith(GRAPPLER) and not preserved and self._retry(name, child)
        except Exception as error:  # one pass that fails, or whose graph TensorFlow refuses, must not stop the others
            self.taken_back[name] = f"{type(error).__name__}: {first_line(error)}"
            return False
        self.report.add(report)
        old, new = (Counter(node.op for node in frozen.graph.node) for frozen in (self.model, child))
        changed = {op: [old[op], new[op]] for op in sorted(old | new) if old[op] != new[op]}
        counts = [old.total(), new.total()]
        self.rows.append({"pass": name, "nodes": counts, "by_op": changed, "error": relative_error})
        self.model = child
        return True

    def _retry(self, name: str, refused: Frozen) -> bool:
        """Run an optimizer again without rewriting one of the operations that it removed."""
        old, new = (Counter(node.op for node in frozen.graph.node) for frozen in (self.model, refused))
        reason = self.taken_back[name]
        for op in sorted((op for op in old if new[op] < old[op] and op not in PLUMBING), key=old.__getitem__)[:RETRIES]:
            if self._try(name, [node.name for node in self.model.graph.node if node.op == op]):
                self.taken_back[name] = f"{reason}; it ran without rewriting {op}"
                return True
        self.taken_back[name] = reason
        return False

    def _apply(self, name: str, report: Report, preserved: Collection[str] = ()) -> Frozen | None:
        """Return the model after a pass; None if the pass changes nothing."""
        if name.startswith(GRAPPLER):
            sums = set() if self._fast_math else signed_sums(self.model.graph)
            child = grappler.run(self.model, [name.removeprefix(GRAPPLER)], sums.union(preserved))
            return child if _content(child) != _content(self.model) else None
        child = optimize(self.model, [name], report, fast_math=self._fast_math)
        return child if report.facts()["fired"] else None


def _content(frozen: Frozen) -> dict[str, bytes]:
    return {node.name: node.SerializeToString(deterministic=True) for node in frozen.graph.node}
