"""The time that a comparison may take."""

import time

from tfopt.errors import ComponentError


class Budget:
    """The time that all of it may take, running from when this is made."""

    def __init__(self, minutes: float) -> None:
        """Start the clock."""
        self.minutes = minutes
        self._until = time.monotonic() + 60 * minutes

    def __str__(self) -> str:
        """How much of it is gone."""
        gone = self.minutes - (self._until - time.monotonic()) / 60
        return f"{gone:.1f} of {self.minutes:g} min"

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        return time.monotonic() >= self._until

    def left(self) -> float:
        """The seconds that are left.

        Raises:
            ComponentError: When there are none.
        """
        if self.spent:
            raise ComponentError(
                f"no budget left: the {self.minutes:g} minutes were used up before it",
                "time for each backbone",
                "allow more minutes, or name fewer backbones",
            )
        return max(self._until - time.monotonic(), 0.01)
