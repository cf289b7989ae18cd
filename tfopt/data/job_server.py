"""Job servers of Beam's Flink and Spark runners, which end with the pipeline, and with this process.

Beam's own stop in an exit handler, which a killed process does not call, and they set a signal handler, which Python
refuses in other threads than the main one: TFX's Beam runner runs each component in such a thread.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from apache_beam.options.pipeline_options import FlinkRunnerOptions, JobServerOptions, PipelineOptions
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer, FlinkRunner
from apache_beam.runners.portability.job_server import JavaJarJobServer
from apache_beam.runners.portability.spark_runner import SparkJarJobServer, SparkRunner

from tfopt.data.portable_runners import FLINK, RunnerArguments, check_arguments, download_error, start_error
from tfopt.processes.parent_death import bound_command


@contextlib.contextmanager
def started_runner(arguments: Sequence[str], options: PipelineOptions) -> Iterator[Any]:
    """Yield Beam's runner with a job server of its own, or None if the arguments need none.

    Raises:
        ComponentError: If Java or the jar is missing.
    """
    check_arguments(arguments)
    needs = RunnerArguments.parse(arguments)
    if not needs.starts_job_server:
        yield None
        return
    runner: Any = _Flink() if needs.runner == FLINK else _Spark()
    try:
        yield runner
    except RuntimeError as error:
        if "job server jar" in str(error):
            raise download_error(error, needs, options.view_as(JobServerOptions).jar_cache_dir) from error
        if "Service failed to start" in str(error):
            raise start_error(error, needs) from error
        raise
    finally:
        if runner.server is not None and runner.server.has_process:
            runner.server.stop()


class _BoundCommand(JavaJarJobServer):  # type: ignore[misc]  # Beam has no types
    """Lets the kernel kill the job server with this process."""

    has_process = False

    def subprocess_cmd_and_endpoint(self) -> tuple[list[str], str]:
        """Return the command, and the address that it will serve."""
        command, endpoint = super().subprocess_cmd_and_endpoint()
        self.has_process = True  # before that, Beam's `stop` fails
        return bound_command(*command), endpoint


class _FlinkServer(_BoundCommand, FlinkJarJobServer):  # type: ignore[misc]
    """Beam's job server for Flink."""


class _SparkServer(_BoundCommand, SparkJarJobServer):  # type: ignore[misc]
    """Beam's job server for Spark."""


class _Flink(FlinkRunner):  # type: ignore[misc]
    """Beam's Flink runner with `_FlinkServer`."""

    server: _FlinkServer | None = None

    def default_job_server(self, options: PipelineOptions) -> _FlinkServer:
        """Return the job server, not yet started."""
        flink = options.view_as(FlinkRunnerOptions)
        flink.flink_master = self.add_http_scheme(flink.flink_master)
        self.server = _FlinkServer(options)
        return self.server


class _Spark(SparkRunner):  # type: ignore[misc]
    """Beam's Spark runner with `_SparkServer`."""

    server: _SparkServer | None = None

    def default_job_server(self, options: PipelineOptions) -> _SparkServer:
        """Return the job server, not yet started."""
        self.server = _SparkServer(options)
        return self.server
