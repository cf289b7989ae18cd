"""Order of the steps of a run: independent ones side by side where they may be, the others one at a time.

A step may run next to others if its component declares it (`concurrent` of `tfopt.component`). Every other step runs
alone, in the main thread, so that nothing disturbs a measurement.
"""

import contextvars
import re
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import psutil

from tfopt.dag.dag import Step
from tfopt.dag.outcome import Outcome, running_step
from tfopt.declaration.component import TRUST_MODEL_CODE
from tfopt.processes.preloaded_processes import end_calls

UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "K": 10**3, "M": 10**6, "G": 10**9}


def run_steps(
    steps: Sequence[Step],
    start: Callable[[Step], Callable[[], Outcome]],
    finish: Callable[[Step, Outcome], None],
    jobs: int,
) -> None:
    """Run the steps of a DAG.

    Args:
        steps: The steps, each after those whose outputs it uses.
        start: Called in this thread for a step whose inputs are complete; returns the function that runs it.
        finish: Called in this thread for a step that has ended, before a step starts that uses its outputs.
        jobs: Most steps at a time. Their declared memory together is at most what the machine has free.

    Raises:
        Exception: The first one of a step. Steps that run at that time end before, so that their results are reused.
    """
    running: dict[Future[Outcome], Step] = {}
    waiting, done = list(steps), set[str]()
    free = psutil.virtual_memory().available
    threads = ThreadPoolExecutor(jobs, "step")
    try:
        try:
            while waiting or running:
                ready = [step for step in waiting if done.issuperset(output.step for output in step.used_outputs)]
                for step in [step for step in ready if jobs > 1 and step.component.concurrent]:
                    if len(running) < jobs and _fits(step, running.values(), free):
                        waiting.remove(step)
                        running[threads.submit(contextvars.copy_context().run, _named, step, start(step))] = step
                if running:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        outcome = future.result()
                        step = running.pop(future)
                        done.add(step.id)
                        finish(step, outcome)
                else:
                    step = ready[0]
                    waiting.remove(step)
                    outcome = start(step)()
                    done.add(step.id)
                    finish(step, outcome)
        except Exception:
            wait(running)
            for future, step in running.items():
                if not future.exception():
                    finish(step, future.result())
            raise
    except BaseException as error:
        if not isinstance(error, Exception):  # Ctrl-C: without their child processes the threads end at once
            end_calls()
        raise
    finally:
        threads.shutdown()


def _fits(step: Step, others: Collection[Step], free: int) -> bool:
    """Return True if a step may run next to others, with so many bytes of memory for all of them."""
    used = sum(_memory(other) for other in others)
    trust = TRUST_MODEL_CODE.name  # holds for the whole process while a step runs
    is_alike = all(other.parameters.get(trust) == step.parameters.get(trust) for other in others)
    return not others or (is_alike and used + _memory(step) <= free)


def _named(step: Step, run: Callable[[], Outcome]) -> Outcome:
    running_step.set(step.id)  # in a context of its own
    return run()


def _memory(step: Step) -> int:
    """Return the bytes of memory that the component of a step declares, as a Kubernetes quantity."""
    number, unit = re.fullmatch(r"(\d+)(\w*)", step.component.resources.memory).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]
