"""Report of graph laws: firings and refusals with their reasons, as counts with a few examples."""

from collections import Counter, defaultdict
from collections.abc import Container
from dataclasses import dataclass, field

from tfopt.value_types import JsonObject

SHOWN = 3


@dataclass
class Report:
    """Firings and refusals of laws on one graph."""

    # names of the nodes at which a law fired, by law
    fired: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    # the last reason for a refusal, by law and node
    refused: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))

    def fire(self, law: str, node: str) -> None:
        """Record that a law fired at a node, and remove an earlier refusal there."""
        self.fired[law].append(node)
        self.refused[law].pop(node, None)

    def refuse(self, law: str, node: str, reason: str) -> None:
        """Record the reason why a law did not fire at a node."""
        self.refused[law][node] = reason

    def add(self, other: "Report", function: str = "") -> None:
        """Add all entries of a later report; its nodes are those of the graph, or in a function of it."""
        scope = f"{function}/" if function else ""
        for law, nodes in other.fired.items():
            for node in nodes:
                self.fire(law, scope + node)
        for law, refusals in other.refused.items():
            self.refused[law].update({scope + node: reason for node, reason in refusals.items()})

    def forget_gone(self, nodes: Container[str]) -> None:
        """Remove refusals at nodes that are no longer in ``nodes``."""
        for law, refusals in self.refused.items():
            self.refused[law] = {node: reason for node, reason in refusals.items() if node in nodes}

    def facts(self) -> JsonObject:
        """Return counts and example names for the model card."""
        return {
            "fired": {law: {"times": len(at), "for_example": at[:SHOWN]} for law, at in self.fired.items() if at},
            "refused": {law: _reasons(nodes) for law, nodes in self.refused.items() if nodes},
        }


def _reasons(nodes: dict[str, str]) -> list[JsonObject]:
    return [
        {
            "reason": reason,
            "times": times,
            "for_example": [node for node, why in nodes.items() if why == reason][:SHOWN],
        }
        for reason, times in Counter(nodes.values()).most_common()
    ]
