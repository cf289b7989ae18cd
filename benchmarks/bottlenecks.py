"""Count the planted bottlenecks that `profile_training` names correctly.

    python benchmarks/bottlenecks.py [--seconds 3] [--only NAME …]

Each training has one fault (`benchmarks/planted.py`). It is measured as the component does it, but no variation is
tried. A slow disk is simulated by a library that is loaded before the C library; it requires a C compiler.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from planted import ALL, Planted

from tfopt.components.profile_training.bottleneck import StepTimes, find_bottleneck
from tfopt.components.profile_training.parameters import Pace
from tfopt.components.profile_training.profile import diagnose, start_process
from tfopt.components.profile_training.training_variant import TrainingVariant, Variation
from tfopt.reports.training_plan import Bottleneck


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each part")
    parser.add_argument("--only", nargs="*", help="names of cases")
    arguments = parser.parse_args()
    cases = [case for case in ALL if not arguments.only or case.name in arguments.only]
    correct = 0
    for case in cases:
        times, bottleneck = diagnose_case(case, Pace(seconds=arguments.seconds, rounds=8))
        correct += bottleneck.name == case.expected
        mark = "correct" if bottleneck.name == case.expected else f"WRONG, {case.expected} was planted"
        print(f"{case.name:36} {bottleneck.name:18} {mark}", f"    {_numbers(times)}", sep="\n")
        print(f"    {bottleneck.sentence}", flush=True)
    print(f"{correct} of {len(cases)} named correctly")


def diagnose_case(case: Planted, pace: Pace) -> tuple[StepTimes, Bottleneck]:
    """Return the step times and the bottleneck that the component finds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        examples, module, environment = case.write(folder)
        parameters: dict[str, Any] = dict(case.parameters)
        base = TrainingVariant(examples=str(examples), module=str(module), seed=0, **parameters)
        with start_process(Variation("planted", base, "plan", environment=environment), folder, 0) as process:
            times, _, _ = diagnose(process, base, pace, folder / "trace")
        return times, find_bottleneck(times)


def _numbers(times: StepTimes) -> str:
    names = ("step", "model", "graph", "larger", "usual", "input", "epoch_start", "fixed")
    parts = {name: getattr(times, name) for name in names} | dict(times.stages)
    lines = {f"line {loop.line} ({loop.kind})": loop.ms for loop in times.loops}
    sums = {"forward": times.forward, "operations": sum(times.spent.values())}
    return ", ".join(f"{name} {ms:.3g}" for name, ms in (parts | lines | sums).items() if ms is not None) + " ms"


if __name__ == "__main__":
    main()
