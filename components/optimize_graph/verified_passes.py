"""Pass after pass on one model: each is kept if the model still answers as its parent, and taken back if not."""

from collections import Counter
from typing import Any

from tfopt.components.optimize_graph.pass_names import GRAPPLER
from tfopt.errors import ComponentError, first_line
from tfopt.graph import grappler
from tfopt.graph.comparison import Comparison, largest_error
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.frozen_runtime import FrozenRuntime
from tfopt.graph.pass_manager import ROUNDS, names_in, optimize
from tfopt.graph.report import Report


class Trial:
    """A model on its way through the passes.

    Attributes:
        model: As it is now.
        rows: What each pass did that did something: nodes before and after, in all and by operation, and the error
            against the parent, in units of the range of the worst output.
        taken_back: Why a pass was taken back, by its name. It is not tried again.
        report: What the laws found and refused.
    """

    def __init__(self, parent: Frozen, comparison: Comparison, tolerance: float) -> None:
        """Start from the parent."""
        self.model, self.report = parent, Report()
        self.rows: list[dict[str, Any]] = []
        self.taken_back: dict[str, str] = {}
        self._comparison, self._tolerance = comparison, tolerance

    def run(self, passes: list[str]) -> None:
        """Try the passes in order, and the laws among them again until none finds anything."""
        for number in range(ROUNDS):
            changed = [self._try(name) for name in passes if not (number and name.startswith(GRAPPLER))]
            if not any(changed):
                break
        self.report.forget_gone(names_in(self.model.graph))

    def _try(self, name: str) -> bool:
        if name in self.taken_back:
            return False
        report = Report()
        try:
            child = self._apply(name, report)
            if child is None:
                self.report.add(report)
                return False
            error = largest_error(self._comparison.errors(lambda key: FrozenRuntime(child, key)))[1]
            if not error <= self._tolerance:
                raise ComponentError(f"an output differs by {error:.2g} of its range", f"{self._tolerance:g}", "")
        except ComponentError as refusal:
            self.taken_back[name] = refusal.received
            return False
        except Exception as error:  # a pass that fails, or whose graph TensorFlow refuses, must not cost the others
            self.taken_back[name] = f"{type(error).__name__}: {first_line(error)}"
            return False
        self.report.add(report)
        self.rows.append({"pass": name, **_effect(self.model, child), "error": error})
        self.model = child
        return True

    def _apply(self, name: str, report: Report) -> Frozen | None:
        """The model after a pass; None where that changes nothing."""
        if name.startswith(GRAPPLER):
            child = grappler.run(self.model, [name.removeprefix(GRAPPLER)])
            return child if _content(child) != _content(self.model) else None
        child = optimize(self.model, [name], report)
        return child if report.facts()["fired"] else None


def _content(frozen: Frozen) -> dict[str, bytes]:
    return {node.name: node.SerializeToString(deterministic=True) for node in frozen.graph.node}


def _effect(before: Frozen, after: Frozen) -> dict[str, Any]:
    old, new = (Counter(node.op for node in frozen.graph.node) for frozen in (before, after))
    changed = {op: [old[op], new[op]] for op in sorted(old | new) if old[op] != new[op]}
    return {"nodes": [old.total(), new.total()], "by_op": changed}
