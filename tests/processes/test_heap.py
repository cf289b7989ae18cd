"""Test that freed memory is returned to the operating system after a step."""

import subprocess
import sys

RUN = """
from pathlib import Path
from tfopt.artifacts import Decision
from tfopt.component import Output, component

def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])

@component(image="tf")
def free(decision: Output[Decision]) -> None:
    '''Free memory below a block that stays allocated.

    Args:
        decision: Anything.
    '''
    blocks = [b"x" * 60_000 for _ in range(4000)]
    retained.append(b"x" * 60_000)
    most.append(resident())
    decision.write({})
    (decision.path / "report.html").touch()

retained, most = [], []
free("decision")
print(most[0] * 4096 / 1e6, resident() * 4096 / 1e6)
"""


def test_memory_freed_by_a_step_is_returned_to_the_system(tmp_path):
    ran = subprocess.run([sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, text=True, check=True)
    most, after = map(float, ran.stdout.split())
    assert most > 240
    assert after < most - 200
