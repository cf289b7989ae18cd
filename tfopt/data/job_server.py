"""Job servers of Beam's Flink and Spark runners, which end with the pipeline, and with this process.

Beam's own stop in an exit handler, which a killed process does not call, and they set a signal handler, which Python
refuses in other threads than the main one: TFX's Beam runner runs each component in such a thread.
"""

import contextlib
from collections.abc import Iterator

from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions, PortableOptions
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer, FlinkRunner
from apache_beam.runners.portability.job_server import JavaJarJobServer
from apache_beam.runners.portability.spark_runner import SparkJarJobServer

from tfopt.processes.parent_death import bound_command


class _BoundServer(JavaJarJobServer):  # type: ignore[misc]  # Beam has no types
    """Lets the kernel kill the job server with this process."""

    endpoint = ""

    def subprocess_cmd_and_endpoint(self) -> tuple[list[str], str]:
        """Return the command, and the address that it will serve."""
        command, self.endpoint = super().subprocess_cmd_and_endpoint()
        return bound_command(*command), self.endpoint


class _FlinkServer(_BoundServer, FlinkJarJobServer):  # type: ignore[misc]
    """Beam's job server for Flink."""


class _SparkServer(_BoundServer, SparkJarJobServer):  # type: ignore[misc]
    """Beam's job server for Spark."""


@contextlib.contextmanager
def job_server(options: PipelineOptions, *, flink: bool) -> Iterator[None]:
    """Start the job server of Flink, or of Spark, and name it in Beam's options; stop it at the end."""
    if flink:
        view = options.view_as(FlinkRunnerOptions)
        view.flink_master = FlinkRunner.add_http_scheme(view.flink_master)
    server = _FlinkServer(options) if flink else _SparkServer(options)
    try:
        server.start()
        options.view_as(PortableOptions).job_endpoint = server.endpoint
        yield
    finally:
        if server.endpoint:  # Beam's `stop` fails without a process
            server.stop()
