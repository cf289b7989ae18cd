"""Job servers of Beam's Flink and Spark runners, which end with the pipeline, and with this process.

Beam's own stop in an exit handler, which a killed process does not call, and they set a signal handler, which Python
refuses in other threads than the main one: TFX's Beam runner runs each component in such a thread.
"""

from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer, FlinkRunner
from apache_beam.runners.portability.job_server import JavaJarJobServer
from apache_beam.runners.portability.spark_runner import SparkJarJobServer, SparkRunner

from tfopt.processes.parent_death import bound_command


class BoundJobServer(JavaJarJobServer):  # type: ignore[misc]  # Beam has no types
    """Lets the kernel kill the job server with this process."""

    has_process = False

    def subprocess_cmd_and_endpoint(self) -> tuple[list[str], str]:
        """Return the command, and the address that it will serve."""
        command, endpoint = super().subprocess_cmd_and_endpoint()
        self.has_process = True  # before that, Beam's `stop` fails
        return bound_command(*command), endpoint


class _FlinkServer(BoundJobServer, FlinkJarJobServer):  # type: ignore[misc]
    """Beam's job server for Flink."""


class _SparkServer(BoundJobServer, SparkJarJobServer):  # type: ignore[misc]
    """Beam's job server for Spark."""


class Flink(FlinkRunner):  # type: ignore[misc]
    """Beam's Flink runner with `_FlinkServer`."""

    server: _FlinkServer | None = None

    def default_job_server(self, options: PipelineOptions) -> _FlinkServer:
        """Return the job server, not yet started."""
        flink = options.view_as(FlinkRunnerOptions)
        flink.flink_master = self.add_http_scheme(flink.flink_master)
        self.server = _FlinkServer(options)
        return self.server


class Spark(SparkRunner):  # type: ignore[misc]
    """Beam's Spark runner with `_SparkServer`."""

    server: _SparkServer | None = None

    def default_job_server(self, options: PipelineOptions) -> _SparkServer:
        """Return the job server, not yet started."""
        self.server = _SparkServer(options)
        return self.server
