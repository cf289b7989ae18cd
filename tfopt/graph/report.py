"""What fired and what was refused, with the reason, in counts and a few examples."""

from collections import Counter, defaultdict
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

SHOWN = 3


@dataclass
class Report:
    """What the laws did to a graph.

    Attributes:
        fired: By law, the nodes at which it fired.
        refused: By law, the last reason given at each node.
    """

    fired: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    refused: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))

    def fire(self, law: str, node: str, times: int = 1) -> None:
        """A law holds at a node, which an earlier refusal no longer concerns."""
        self.fired[law] += [node] * times
        self.refused[law].pop(node, None)

    def refuse(self, law: str, node: str, reason: str) -> None:
        """A law does not hold at a node."""
        self.refused[law][node] = reason

    def add(self, other: "Report") -> None:
        """Everything of another report, which is the later one."""
        for law, nodes in other.fired.items():
            for node in nodes:
                self.fire(law, node)
        for law, refusals in other.refused.items():
            self.refused[law].update(refusals)

    def inside(self, function: str) -> "Report":
        """The same with the name of the function whose body it is about before each node."""
        made = Report()
        for law, nodes in self.fired.items():
            made.fired[law] = [f"{function}/{node}" for node in nodes]
        for law, refusals in self.refused.items():
            made.refused[law] = {f"{function}/{node}": reason for node, reason in refusals.items()}
        return made

    def forget_gone(self, nodes: Container[str]) -> None:
        """Refusals at nodes that another law took away are no news."""
        for law, refusals in self.refused.items():
            self.refused[law] = {node: reason for node, reason in refusals.items() if node in nodes}

    def facts(self) -> dict[str, Any]:
        """Counts and example names, for a model card."""
        return {
            "fired": {law: {"times": len(at), "for_example": at[:SHOWN]} for law, at in self.fired.items() if at},
            "refused": {law: _reasons(nodes) for law, nodes in self.refused.items() if nodes},
        }


def _reasons(nodes: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "reason": reason,
            "times": times,
            "for_example": [node for node, why in nodes.items() if why == reason][:SHOWN],
        }
        for reason, times in Counter(nodes.values()).most_common()
    ]
