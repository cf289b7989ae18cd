"""The Beam pipeline of a component, run with whatever arguments the engine was given.

What is exact on every runner, Dask's included: ``Create | FlatMap (or ParDo with setup) | CombinePerKey with an
integer key``, and output written inside a Map. Dask's runner drops what ``finish_bundle`` emits and merges tagged
outputs; its shuffle goes by ``hash(key)``, which for None and for text differs from process to process; a side input
from behind a shuffle arrives twice; and of several branches only the last one is run.
"""

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from tfopt.errors import ComponentError

DASK = "apache_beam.runners.dask.dask_runner.DaskRunner"

_ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("beam_pipeline_args", default=())


@contextlib.contextmanager
def arguments(given: Sequence[str]) -> Iterator[None]:
    """Give every `pipeline` opened inside these runner arguments (``--runner=…``, ``--direct_num_workers=…``)."""
    token = _ARGUMENTS.set(tuple(given))
    try:
        yield
    finally:
        _ARGUMENTS.reset(token)


@contextlib.contextmanager
def pipeline() -> Iterator[Any]:
    """Yield a ``beam.Pipeline``; it runs to its end when the block closes.

    Raises:
        OSError: A worker's, with its number: a full disk, for instance.
    """
    import apache_beam as beam

    options = _options()
    opened = beam.Pipeline(runner=_quoted(options), options=options)
    try:
        with opened:
            yield opened
    except RuntimeError as error:  # what a worker raised comes back as text
        if found := re.search(r"\[Errno (\d+)\] ([^\n\[]*)", str(error)):
            raise OSError(int(found[1]), found[2].strip()) from error
        raise
    finally:
        # Dask's runner opens a client for each run, and leaves it open.
        client = getattr(getattr(opened, "result", None), "client", None)
        if client is not None:
            client.close()


def workers() -> int:
    """How many elements the runner works on at once, as far as its arguments tell; for cutting work into parts."""
    from apache_beam.options.pipeline_options import DirectOptions, WorkerOptions

    options = _options()
    runner = _runner(options)
    if runner == "FnApiRunner":
        return int(options.view_as(DirectOptions).direct_num_workers) or os.cpu_count() or 1
    if runner.startswith("Dask"):
        return _dask_threads(options)
    asked = options.view_as(WorkerOptions)
    parallelism = options.get_all_options().get("parallelism") or 0
    return max(asked.max_num_workers or asked.num_workers or parallelism, 0) or 8


def _options() -> Any:
    from apache_beam.options.pipeline_options import StandardOptions

    options = _parsed(list(_ARGUMENTS.get()))
    if _runner(options) in ("", "DirectRunner", "SwitchingDirectRunner"):
        # What that name stands for first tries to download another runner, and then runs this one.
        options.view_as(StandardOptions).runner = "FnApiRunner"
    if _runner(options).startswith("Dask"):
        from apache_beam.runners.dask.dask_runner import DaskOptions

        options.view_as(StandardOptions).runner = DASK  # Beam knows it by its whole name only
        dask = options.view_as(DaskOptions)
        if str(dask.address).startswith("inproc:"):
            # The partitions of such a cluster share one list of results inside Beam's Dask runner.
            raise ComponentError(
                f"dask_client_address={dask.address}",
                "a cluster of processes; on one inside this process, Beam's Dask runner counts records twice",
                "start it with LocalCluster(processes=True)",
            )
        if not dask.npartitions and not dask.partition_size:
            dask.partition_size = 1  # the default, 128, would put all the files of most data sets on one worker
    return options


def _parsed(given: list[str]) -> Any:
    from apache_beam.options.pipeline_options import PipelineOptions

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options = PipelineOptions(given)
            options.get_all_options()
    except SystemExit as error:  # that is how argparse refuses
        raise ComponentError(
            f"Beam's arguments {shlex.join(given)}: {said.getvalue().strip().splitlines()[-1]}",
            "arguments that Beam takes",
            "mend what --beam-pipeline-arg says",
        ) from error
    return options


def _quoted(options: Any) -> Any:
    """A runner for processes whose Python has a path that a shell would not take as one word; else None.

    Beam hands that path to a shell as it is, and waits forever for the workers that never start.
    """
    from apache_beam.options.pipeline_options import DirectOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

    direct, python = options.view_as(DirectOptions), shlex.quote(sys.executable)
    if (
        _runner(options) != "FnApiRunner"
        or direct.direct_running_mode != "multi_processing"
        or python == sys.executable
    ):
        return None
    direct.direct_running_mode = "in_memory"  # else the environment given here is replaced
    command = f"{python} -m apache_beam.runners.worker.sdk_worker_main"
    return FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(command))


def _runner(options: Any) -> str:
    from apache_beam.options.pipeline_options import StandardOptions

    return str(options.view_as(StandardOptions).runner or "").rpartition(".")[2]


def _dask_threads(options: Any) -> int:
    import distributed
    from apache_beam.runners.dask.dask_runner import DaskOptions

    dask = options.view_as(DaskOptions)
    if not dask.address and not dask.scheduler_file:
        return os.cpu_count() or 1
    with distributed.Client(address=dask.address, scheduler_file=dask.scheduler_file, set_as_default=False) as client:
        return sum(client.nthreads().values()) or 1
