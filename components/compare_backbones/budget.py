"""The time budget of a comparison."""

import time

from tfopt.errors import ComponentError


class Budget:
    """A time budget that starts when the object is created."""

    def __init__(self, minutes: float) -> None:
        """Start the clock."""
        self.minutes = minutes
        self._end = time.monotonic() + 60 * minutes

    def __str__(self) -> str:
        """Return the elapsed part as text."""
        elapsed = self.minutes - (self._end - time.monotonic()) / 60
        return f"{elapsed:.1f} of {self.minutes:g} min"

    @property
    def is_spent(self) -> bool:
        """True if no time is left."""
        return time.monotonic() >= self._end

    def remaining_seconds(self) -> float:
        """Return the remaining seconds; raise ComponentError if no time is left."""
        if self.is_spent:
            raise ComponentError(
                f"no budget left: the {self.minutes:g} minutes were used up before it",
                "time for each backbone",
                "allow more minutes, or name fewer backbones",
            )
        return max(self._end - time.monotonic(), 0.01)
