"""How many planted bottlenecks `profile_training` names right.

    python benchmarks/bottlenecks.py [--seconds 3] [--only NAME …]

Each training has one fault (`benchmarks/planted.py`). It is measured as the component does it, but the settings that
could help are not tried. Slow disks are made with a library before the C library's, which a C compiler is needed for.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from planted import ALL, Planted

from tfopt.components.profile_training.bottleneck import Bottleneck, Measured, bottleneck
from tfopt.components.profile_training.interleaving import Pace, started
from tfopt.components.profile_training.profile import diagnose
from tfopt.components.profile_training.training_variant import Setup
from tfopt.components.profile_training.variations import Variation


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each part")
    parser.add_argument("--only", nargs="*", help="names of cases")
    given = parser.parse_args()
    cases = [case for case in ALL if not given.only or case.name in given.only]
    right = 0
    for case in cases:
        found, named = diagnosed(case, Pace(given.seconds, 8, 0))
        right += named.name == case.right
        mark = "right" if named.name == case.right else f"WRONG, {case.right} was planted"
        print(f"{case.name:36} {named.name:18} {mark}\n    {_numbers(found)}\n    {named.sentence}", flush=True)
    print(f"{right} of {len(cases)} named right")


def diagnosed(case: Planted, pace: Pace) -> tuple[Measured, Bottleneck]:
    """What the component finds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        examples, module, environment = case.write(folder)
        usual = Setup(
            str(examples), str(module), "label", 0, True, 64, "module", "module", "auto", 0, 0, threads=0, prefetch=2
        )
        base = replace(usual, **case.parameters)  # type: ignore[arg-type]
        with started(Variation("planted", base, "plan", environment=environment), folder, 0) as process:
            found, _, _ = diagnose(process, base, pace, folder / "trace")
        return found, bottleneck(found)


def _numbers(found: Measured) -> str:
    names = ("step", "model", "graph", "larger", "usual", "input", "begun", "fixed")
    parts = {name: getattr(found, name) for name in names} | dict(found.stages)
    at = {f"line {loop['line']} ({loop['kind']})": loop["ms"] for loop in found.loops}
    every = {"forward": found.forward, "operations": sum(found.spent.values())}
    return ", ".join(f"{name} {ms:.3g}" for name, ms in (parts | at | every).items() if ms is not None) + " ms"


if __name__ == "__main__":
    main()
