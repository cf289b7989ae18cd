"""Run a component's Beam pipeline with the runner arguments of the engine, and return its result.

These transforms are exact on all runners, including Dask's: ``Create | FlatMap (or ParDo with setup) | CombinePerKey
with an integer key``, and output written inside a Map. Dask's runner drops elements that ``finish_bundle`` emits and
merges tagged outputs; it shuffles by ``hash(key)``, which for None and text differs between processes; it duplicates
side inputs that come after a shuffle; and of several branches it runs only the last one.
"""

import argparse
import contextlib
import hmac
import io
import os
import pickle
import re
import secrets
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tfopt.declaration.extensions import Extensions
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.processes.parent_death import PYTHON
from tfopt.storage import remote_files

MOST_WORKERS = 1024  # each is a thread or a process of this machine
DASK = "apache_beam.runners.dask.dask_runner.DaskRunner"

_DIGEST, _DIGEST_BYTES = "sha256", 32
_ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("beam_pipeline_args", default=())


@dataclass(frozen=True)
class BeamRunner:
    """Needs of a runner besides its name, as an entry point declares them.

    Attributes:
        check: Raises ComponentError for arguments with which no pipeline can run, without importing Beam.
        start: Yields the runner of a pipeline with arguments and Beam's options, or None for Beam's own. Then it stops
            what it started, and converts errors of the runner.
    """

    check: Callable[[Sequence[str]], None]
    start: Callable[[Sequence[str], Any], AbstractContextManager[Any]]


# By the name of the runner's class, in lower case as Beam compares it.
RUNNERS = Extensions(
    "tfopt.beam_runners",
    BeamRunner,
    dict.fromkeys(("flinkrunner", "portablerunner", "sparkrunner"), "tfopt.data.portable_runners.RUNNER"),
)


def runner_name(arguments: Sequence[str]) -> str:
    """Return the class of the runner in Beam's arguments, without its module; empty if there is none."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--runner", nargs="?")
    return (parser.parse_known_args(list(arguments))[0].runner or "").rpartition(".")[2]


def find_runner(arguments: Sequence[str]) -> BeamRunner | None:
    """Return what the runner in Beam's arguments needs; None if they name none, or it needs nothing."""
    name = runner_name(arguments).lower()
    return RUNNERS[name] if name and name in RUNNERS else None


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise ComponentError for Beam's arguments with which no pipeline can run, without importing Beam."""
    if runner := find_runner(arguments):
        runner.check(arguments)


@contextlib.contextmanager
def runner_arguments(values: Sequence[str]) -> Iterator[None]:
    """Set the runner arguments (``--runner=…``, ``--direct_num_workers=…``) of every `pipeline` in this context."""
    token = _ARGUMENTS.set(tuple(values))
    try:
        yield
    finally:
        _ARGUMENTS.reset(token)


def current_arguments() -> tuple[str, ...]:
    """Return the runner arguments of this context."""
    return _ARGUMENTS.get()


@contextlib.contextmanager
def pipeline() -> Iterator[Any]:
    """Yield a ``beam.Pipeline``, and run it at the end of the block.

    Raises:
        ComponentError: If the runner lacks something, or its job failed.
        OSError: If a worker raised it, for example for a full disk; with its ``errno``.
        KeyboardInterrupt: If Ctrl-C interrupted a worker.
    """
    import apache_beam as beam

    options, arguments = _options(), _ARGUMENTS.get()
    opened: Any = None
    special = find_runner(arguments)
    started = special.start(arguments, options) if special else contextlib.nullcontext(_subprocess_runner(options))
    try:
        with started as runner, worker_errors():
            with _named_errors(options):
                opened = beam.Pipeline(runner=runner, options=options)
            yield opened
            with _runner_errors(special, options), opened:  # runs it
                pass
    finally:
        # Dask's runner opens a client for each run and does not close it.
        client = getattr(getattr(opened, "result", None), "client", None)
        if client is not None:
            client.close()


@dataclass(frozen=True)
class ResultFile:
    """The file in which a worker returns a pipeline's result: the only way that every runner supports.

    Its content is a pickle, which can run code when it is read, so the worker, which gets a copy of this object,
    authenticates it with a key of this run (HMAC, RFC 2104): a file that anything else wrote is refused unread.
    """

    uri: str
    key: bytes = field(default_factory=lambda: secrets.token_bytes(_DIGEST_BYTES), repr=False)

    def write(self, result: Any) -> None:
        """Write the result; called by a worker."""
        content = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        with remote_files.open_file(self.uri, "wb") as stream:
            stream.write(hmac.digest(self.key, content, _DIGEST) + content)

    def take(self) -> Any:
        """Read and remove the file in the launching process; raise ComponentError if no worker of this run wrote it."""
        try:
            with remote_files.open_file(self.uri) as stream:
                code, content = stream.read(_DIGEST_BYTES), stream.read()
        except (ComponentError, OSError) as error:
            received = "the Beam runner ended without a result"
            fix = "give workers on other machines an address that they share with this one"
            raise ComponentError(received, "a runner that writes to the output's address", fix) from error
        remote_files.remove(self.uri)
        if not hmac.compare_digest(code, hmac.digest(self.key, content, _DIGEST)):
            received = f"{self.uri}: not written by the workers of this run, or incomplete"
            fix = "allow no other process to write to the output's folder while the step runs"
            raise ComponentError(received, "the result that a worker wrote", fix)
        return pickle.loads(content)


def worker_count() -> int:
    """Estimate from its arguments how many elements the runner processes in parallel."""
    from apache_beam.options.pipeline_options import DirectOptions, WorkerOptions

    options = _options()
    runner = _runner(options)
    if runner == "FnApiRunner":
        return int(options.view_as(DirectOptions).direct_num_workers) or os.cpu_count() or 1
    if runner.startswith("Dask"):
        import distributed
        from apache_beam.runners.dask.dask_runner import DaskOptions

        dask = options.view_as(DaskOptions)
        if not dask.address and not dask.scheduler_file:
            return os.cpu_count() or 1
        cluster = {"address": dask.address, "scheduler_file": dask.scheduler_file}
        with distributed.Client(**cluster, set_as_default=False) as client:
            return sum(client.nthreads().values()) or 1
    worker_options = options.view_as(WorkerOptions)
    parallelism = options.get_all_options().get("parallelism") or 0
    return max(worker_options.max_num_workers or worker_options.num_workers or parallelism, 0) or 8


def _options() -> Any:
    from apache_beam.options.pipeline_options import StandardOptions

    options = _parsed(list(_ARGUMENTS.get()))
    if _runner(options) in ("", "DirectRunner", "SwitchingDirectRunner"):
        # DirectRunner first tries to download another runner and then runs this one.
        options.view_as(StandardOptions).runner = "FnApiRunner"
    if _runner(options).startswith("Dask"):
        from apache_beam.runners.dask.dask_runner import DaskOptions

        options.view_as(StandardOptions).runner = DASK  # Beam finds it by its full name only
        dask = options.view_as(DaskOptions)
        if str(dask.address).startswith("inproc:"):
            # The partitions of such a cluster share one list of results inside Beam's Dask runner.
            raise ComponentError(
                f"dask_client_address={dask.address}",
                "a cluster of processes: in a cluster inside this process, Beam's Dask runner counts records twice",
                "start it with LocalCluster(processes=True)",
            )
        if not dask.npartitions and not dask.partition_size:
            dask.partition_size = 1  # the default of 128 would process all files of most data sets on one worker
    if _runner(options) == "FnApiRunner" or _runner(options).startswith("Dask"):
        _check_local_options(options)
    return options


def _check_local_options(options: Any) -> None:
    """Raise ComponentError for an option that Beam would ignore. Runners elsewhere may have others."""
    values = options.get_all_options()
    words, before = _ARGUMENTS.get(), ("", *_ARGUMENTS.get())
    stray = [word for word, last in zip(words, before, strict=False) if not word.startswith("-") and last[:1] != "-"]
    unknown = [f"--{name}" for name in options.get_all_options(retain_unknown_options=True).keys() - values.keys()]
    if name := min([*stray, *unknown], default=None):
        fix = "write --OPTION=VALUE" if name in stray else nearest(name, [f"--{option}" for option in values])
        raise ComponentError(f"Beam's arguments {shlex.join(words)}: {name}", "options of Beam", fix)
    workers = values["direct_num_workers"]
    if not 0 <= workers <= MOST_WORKERS:
        fix = "write 0 for as many as this machine has cores"
        raise ComponentError(f"--direct_num_workers={workers}", f"0 to {MOST_WORKERS} workers", fix)


def _parsed(arguments: list[str]) -> Any:
    from tfopt.data.beam_options import CachedOptions  # imports Beam

    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output):
            options = CachedOptions(arguments)
            options.get_all_options()
    except SystemExit as error:  # raised by argparse
        received = f"Beam's arguments {shlex.join(arguments)}: {output.getvalue().strip().splitlines()[-1]}"
        raise ComponentError(received, "arguments that Beam accepts", "correct --beam-pipeline-arg") from error
    return options


@contextlib.contextmanager
def _named_errors(options: Any) -> Iterator[None]:
    """Convert errors of Beam about a runner or its options."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ComponentError) or getattr(error, "errno", None) is not None:
            raise
        received = f"Beam's arguments {shlex.join(_ARGUMENTS.get())}: {type(error).__name__}: {first_line(error)}"
        expected = f"arguments with which Beam's {_runner(options)} runs a pipeline"
        fix = "correct --beam-pipeline-arg, or leave it out: without it, Beam runs in this process"
        raise ComponentError(received, expected, fix) from error


def _runner_errors(special: BeamRunner | None, options: Any) -> AbstractContextManager[None]:
    """Convert errors of runners that are not known; those of known ones are errors of the workers' own code."""
    is_known = special or _runner(options) in ("FnApiRunner", "DaskRunner")
    return contextlib.nullcontext() if is_known else _named_errors(options)


@contextlib.contextmanager
def worker_errors() -> Iterator[None]:
    """Raise the exceptions of workers, and signals that arrived in one, which Beam returns as text."""
    try:
        yield
    except RuntimeError as error:
        if re.match(r"(KeyboardInterrupt|[\w.]+\.Terminated)\b", str(error)):
            raise KeyboardInterrupt from error
        if match := re.search(r"\[Errno (\d+)\] ([^\n\[]*)", str(error)):
            raise OSError(int(match[1]), match[2].strip()) from error
        raise


def _subprocess_runner(options: Any) -> Any:
    """Return a runner for workers in processes of this machine, if the options ask for them; else None.

    Beam's own lets them search the working folder for modules, and passes the path of Python to a shell without
    quotes, and then waits forever for workers that did not start.
    """
    from apache_beam.options.pipeline_options import DirectOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

    direct = options.view_as(DirectOptions)
    if _runner(options) != "FnApiRunner" or direct.direct_running_mode != "multi_processing":
        return None
    direct.direct_running_mode = "in_memory"  # otherwise Beam replaces the environment below
    command = shlex.join([*PYTHON, "-m", "apache_beam.runners.worker.sdk_worker_main"])
    return FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(command))


def _runner(options: Any) -> str:
    from apache_beam.options.pipeline_options import StandardOptions

    return str(options.view_as(StandardOptions).runner or "").rpartition(".")[2]
