"""Estimate how much faster the same kind of model became when a runtime was upgraded, and where that is still to come.

Two pushes of a destination one after the other are a pair if they selected a candidate of the same name and were
measured on the same kind of CPU with the same settings. The center of the log ratios of their latencies over
destinations has an exact interval by Wilcoxon's signed-rank distribution (`tfopt.measurement.speedup`). Everything else
that changed between the runs, such as the weights, is in the ratios too.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfopt.artifacts.formats import FORMATS
from tfopt.fleet.destination_state import LATENCY
from tfopt.model_store.run_history import RunRecord

LEVEL = 0.95
FEWEST = 6  # pairs; with fewer there is no interval of that level


@dataclass(frozen=True)
class LibraryUpgrade:
    """An upgrade of the runtime of a format that was made in some destinations."""

    package: str
    old: str
    new: str
    pairs: int  # destinations that made it
    speedup: float
    low: float
    high: float
    waiting: list[str]  # names of destinations that still serve models measured with the old version

    @property
    def pays(self) -> bool:
        """Return True if models became faster and some destination has not made the upgrade."""
        return self.low > 1 and bool(self.waiting)


def estimate_upgrades(histories: Mapping[str, Sequence[RunRecord]]) -> list[LibraryUpgrade]:
    """Return the upgrades that enough destinations made, those that pay first; histories are oldest first, by name."""
    import numpy as np

    from tfopt.measurement.speedup import hodges_lehmann  # imports NumPy

    ratios: dict[tuple[str, str, str], list[float]] = {}
    newest: dict[str, dict[str, str]] = {}
    for name, runs in histories.items():
        blessed = [run for run in runs if run.blessed and run.versions]
        for earlier, later in itertools.pairwise(blessed):
            for upgrade, ratio in _pair(earlier, later):
                ratios.setdefault(upgrade, []).append(ratio)
        if blessed:
            newest[name] = _runtime_versions(blessed[-1])
    upgrades = []
    for (package, old, new), values in ratios.items():
        if len(values) >= FEWEST:
            value, low, high = map(math.exp, hodges_lehmann(np.array(values), 1 - LEVEL))
            waiting = [name for name, versions in newest.items() if versions.get(package) == old]
            upgrades.append(LibraryUpgrade(package, old, new, len(values), value, low, high, waiting))
    return sorted(upgrades, key=lambda upgrade: (not upgrade.pays, -upgrade.speedup))


def _pair(earlier: RunRecord, later: RunRecord) -> list[tuple[tuple[str, str, str], float]]:
    """Return the one package of the runtime that changed, with the log of the speedup; nothing for other pairs."""
    if earlier.versions == later.versions:
        return []
    latencies = [run.winner.undisturbed(LATENCY) for run in (earlier, later)]
    is_alike = earlier.winner.name == later.winner.name and earlier.conditions.speed == later.conditions.speed
    if not (is_alike and all(latencies)):
        return []
    before, after = _runtime_versions(earlier), _runtime_versions(later)
    changed = [(name, before[name], after[name]) for name in before.keys() & after if before[name] != after[name]]
    old, new = (latency for latency in latencies if latency)
    return [(changed[0], math.log(old / new))] if len(changed) == 1 else []


def _runtime_versions(run: RunRecord) -> dict[str, str]:
    """Return the versions of the packages that run the selected model of a run."""
    packages = FORMATS[run.winner.format].packages if run.winner.format in FORMATS else ()
    return {name: run.versions[name] for name in packages if name in run.versions}
