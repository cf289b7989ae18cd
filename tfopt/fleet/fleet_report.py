"""Read all destinations of a fleet into one report, without a server: each one's run history is in it."""

import datetime
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tfopt.fleet.destination_state import Destination, DestinationState, read_state
from tfopt.fleet.library_upgrades import LibraryUpgrade, estimate_upgrades

READERS = 16  # threads, which wait for object stores


@dataclass(frozen=True)
class FleetReport:
    """The content of ``tfopt fleet --json``."""

    schema_version: ClassVar[int] = 1
    time: str  # ISO 8601 in UTC
    stale_days: float  # days without a push from which on a destination needs attention
    destinations: list[DestinationState]
    upgrades: list[LibraryUpgrade]


def read_fleet(destinations: Sequence[Destination], stale_days: float) -> FleetReport:
    """Read the destinations; one that cannot be read has the error in its state, and does not stop the others."""
    now = datetime.datetime.now(datetime.UTC)
    with ThreadPoolExecutor(READERS) as pool:
        results = list(pool.map(partial(read_state, now=now, stale_days=stale_days), destinations))
    upgrades = estimate_upgrades({state.name: runs for state, runs in results})
    states = [state for state, _ in results]
    return FleetReport(now.isoformat(timespec="seconds"), stale_days, states, upgrades)
