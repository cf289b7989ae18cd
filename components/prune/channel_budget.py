"""Which channels stay: the smallest cut that meets a budget.

One number, the share of channels that go, is searched by bisection. In ``group`` scope every group loses that share of
its own; in ``global`` scope that share of all channels goes, the least important ones wherever they are, and no group
falls below a tenth. Counts are rounded up to a multiple.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from tfopt.components.prune.channels.groups import Group
from tfopt.components.prune.channels.importance import Scores
from tfopt.components.prune.channels.labels import Kept, Labels

Scope = Literal["group", "global"]
LEAST_SHARE = 0.1  # of a group: a layer of one channel would be a wall in the model


def choose(
    groups: Sequence[Group],
    roots: Labels,
    scores: Scores,
    cost: Callable[[Kept], float],
    *,
    budget: float,
    scope: Scope,
    multiple: int,
    steps: int = 30,
) -> Kept | None:
    """Return the labels to keep so that the cost is within the budget, or None when it cannot be.

    Args:
        groups: Those of the model; only those that are not frozen lose channels.
        roots: The bundle of each label.
        scores: How much each bundle matters.
        cost: What a choice costs.
        budget: The most it may cost.
        scope: Where to look for the least important channels.
        multiple: Counts of channels are multiples of this; a group that has no more stays whole.
        steps: Of the bisection.
    """
    pick = _Pick(groups, roots, scores, scope, multiple)
    low, high, found = 0.0, 1.0, pick(1.0)
    if cost(found) > budget:
        return None
    for _ in range(steps):
        middle = (low + high) / 2
        kept = pick(middle)
        if cost(kept) <= budget:
            high, found = middle, kept
        else:
            low = middle
    return found


class _Pick:
    """The labels that stay for a share that goes; the higher the share, the fewer."""

    def __init__(self, groups: Sequence[Group], roots: Labels, scores: Scores, scope: Scope, multiple: int) -> None:
        self.roots, self.scores, self.scope, self.multiple = roots, scores, scope, multiple
        self.groups = [group.bundles for group in groups if not group.frozen]
        self.ranked = np.sort(scores[np.concatenate(self.groups)]) if self.groups else np.zeros(0)

    def __call__(self, share: float) -> Kept:
        kept = np.ones(len(self.roots), np.bool_)
        for bundles in self.groups:
            best_first = bundles[np.argsort(-self.scores[bundles], kind="stable")]
            kept[best_first[self._count(bundles, share) :]] = False
        return kept[self.roots]

    def _count(self, bundles: Labels, share: float) -> int:
        if self.scope == "group":
            wanted = int(np.ceil(len(bundles) * (1 - share)))
        else:
            gone = int(share * len(self.ranked))
            floor = self.ranked[gone - 1] if gone else -np.inf
            wanted = max(int(np.sum(self.scores[bundles] > floor)), int(np.ceil(LEAST_SHARE * len(bundles))))
        return min(max(-(-wanted // self.multiple), 1) * self.multiple, len(bundles))
