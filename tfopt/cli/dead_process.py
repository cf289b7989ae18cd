"""Report the death of the process that ran a command, in three parts, and remove the unfinished outputs it left."""

import signal
import sys
from pathlib import Path

from tfopt.cli.terminal.detection import print_error, remove_progress_bar
from tfopt.errors import ComponentError
from tfopt.processes.exit_status import describe_exit
from tfopt.processes.supervision import Death
from tfopt.storage import staging
from tfopt.storage.scratch import scratch_folder

REQUESTED = {-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGQUIT}


def report_death(death: Death) -> int:
    """Print what ended the process, and return the exit code of the command."""
    remove_progress_bar()
    for output in map(Path, death.work.get("outputs", ())):
        staging.remove_abandoned(output.parent, output.name)
    with scratch_folder():  # removes the folders of ended processes
        pass
    if death.status in REQUESTED:
        print(f"tfopt: {describe_exit(death.status)}; the next run resumes", file=sys.stderr)
        return 128 - death.status
    print_error(f"tfopt: error\n{death_error(death)}")
    return 1


def death_error(death: Death) -> ComponentError:
    """Describe a death, its likely cause, and what can be done.

    >>> print(death_error(Death(0, {"component": "train"}, "")))
    received: train: the process ended with status 0 before its work was done
    expected: code that returns, or raises an exception
    how to fix: remove the call that ends the process (os._exit, or exit in C) from the code that the step runs
    """
    place = f", in {death.line}" if death.line else ""
    step = f"{death.work['component']}: " if "component" in death.work else ""
    received = f"{step}the process {describe_exit(death.status)}{place}"
    if death.status >= 0:
        fix = "remove the call that ends the process (os._exit, or exit in C) from the code that the step runs"
        return ComponentError(f"{received} before its work was done", "code that returns, or raises an exception", fix)
    if death.status == -signal.SIGKILL:
        fix = "run it on a machine, or in a pod, with more; the kernel's log (dmesg) names the processes it killed"
        return ComponentError(received, "enough memory", fix)
    fix = (
        "see the lines printed above: std::bad_alloc means too little memory; otherwise correct the code at that line, "
        "or remove from the model what that library cannot do"
    )
    return ComponentError(received, "libraries and code that do not crash", fix)
