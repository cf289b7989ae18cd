"""When masks are drawn anew, and how sparse they are then."""

from dataclasses import dataclass

UPDATES = 32  # of the masks, from dense to the goal: finer steps change nothing but the time they take
POWER = 3


@dataclass(frozen=True)
class Schedule:
    """Steps are counted from 1. After ``end`` the masks stay, and fine-tuning heals what was lost.

    Reference:
        Zhu and Gupta, "To prune, or not to prune", 2017, equation 1: the cubic rise.

    Attributes:
        goal: The sparsity at the end, from 0 to 1.
        end: The last step at which masks are drawn; 1 when they are drawn once.
        frequency: Steps between two drawings.
    """

    goal: float
    end: int
    frequency: int

    def due(self, step: int) -> bool:
        """Whether masks are drawn before this step."""
        return step <= self.end and (step - 1) % self.frequency == 0

    def sparsity(self, step: int) -> float:
        """The part of the weights that is zero from this step on."""
        if self.end == 1:
            return self.goal
        left = 1 - min(step - 1, self.end - 1) / (self.end - 1)
        return self.goal * (1 - left**POWER)


def plan(kind: str, goal: float, *, steps: int) -> Schedule:
    """Return the schedule of a fine-tuning that is so many steps long.

    ``constant`` prunes once, before the first step. ``polynomial`` gets there over the first half of the steps.

    >>> plan("polynomial", 0.8, steps=1000)
    Schedule(goal=0.8, end=481, frequency=15)
    """
    frequency = max(1, steps // 2 // UPDATES)
    rise = min(UPDATES, steps // 2) * frequency
    return Schedule(goal, 1 if kind == "constant" or not rise else rise + 1, frequency)
