"""Beam's Flink and Spark runners: checks before a run without importing Beam, which takes seconds; errors; start."""

import argparse
import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from tfopt.data.beam_runner import BeamRunner, runner_name
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError, MachineError
from tfopt.processes.parent_death import bound_command

FLINK = "FlinkRunner"
SPARK = "SparkRunner"


@dataclass(frozen=True)
class RunnerArguments:
    """The arguments that decide what a portable runner needs. Beam reads the same ones itself."""

    runner: str  # name of the runner's class, without its module
    master: str  # address of the cluster; empty for the runner's own local one
    jar: str  # path or address of the job server's jar; empty if Beam downloads it
    java: str  # the program that runs the job server
    submits_jar: bool  # the jar is submitted to the cluster, and no job server runs on this machine
    endpoint: str  # address of a job server that runs already
    environment: str  # how the workers are started; empty for the runner's default

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> "RunnerArguments":
        """Read Beam's arguments; those that this class does not know are ignored."""
        name = runner_name(arguments)
        runner = next((runner for runner in (FLINK, SPARK) if runner.lower() == name.lower()), name)
        engine, master = ("flink", "flink_master") if runner == FLINK else ("spark", "spark_master_url")
        options = {"master": master, "jar": f"{engine}_job_server_jar", "java": "job_server_java_launcher"}
        options |= {"endpoint": "job_endpoint", "environment": "environment_type"}
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        for field, option in options.items():
            parser.add_argument(f"--{option}", dest=field, nargs="?", const="", default="")
        parser.set_defaults(java="java")
        parser.add_argument(f"--{engine}_submit_uber_jar", dest="submits_jar", action="store_true")
        return cls(runner=runner, **vars(parser.parse_known_args(list(arguments))[0]))

    @property
    def starts_job_server(self) -> bool:
        """Return True if a job server has to run on this machine."""
        return self.runner in (FLINK, SPARK) and not self.endpoint and not self.submits_jar

    @property
    def is_cluster(self) -> bool:
        """Return True if the workers are those of a cluster, and not in this process."""
        if self.runner not in (FLINK, SPARK):
            return False
        # "[auto]", "[local]" and "local[4]" are local.
        return bool(self.endpoint) or self.master.strip().partition("[")[0] not in ("", "local")


def check_arguments(arguments: Sequence[str]) -> None:
    """Check Beam's arguments for what the Flink and the Spark runner need; other runners need nothing.

    Raises:
        ComponentError: If the named jar does not exist, or a cluster is named without its workers.
        MachineError: If Java is not installed.
    """
    options = RunnerArguments.parse(arguments)
    if options.starts_job_server and not shutil.which(options.java):
        raise MachineError(
            f"--runner={options.runner}, and no program {options.java}",
            "Java 17, in which the job server of this runner runs",
            "apt-get install openjdk-17-jre-headless, or name the program: "
            "--beam-pipeline-arg=--job_server_java_launcher=/path/to/java",
        )
    if options.jar and not urlparse(options.jar).scheme and not Path(options.jar).is_file():
        received = f"the job server's jar {options.jar}: no such file"
        fix = "download it from Maven Central (group org.apache.beam), or leave the argument out: Beam downloads it"
        raise ComponentError(received, f"{jar_name(options.runner)} of this version of Beam", fix)
    if options.is_cluster and not options.environment:
        raise ComponentError(
            f"--runner={options.runner} with a cluster, and no --environment_type",
            "how the cluster starts Python with tfopt: Beam's default image has no tfopt. For example "
            "--environment_type=PROCESS with tfopt-beam-worker as the command",
            "docs/scale.md#workers has the commands",
        )


def jar_name(runner: str) -> str:
    """Return the name of a runner's job server on Maven Central; its Flink version is an argument."""
    return "beam-runners-flink-VERSION-job-server.jar" if runner == FLINK else "beam-runners-spark-3-job-server.jar"


def failed_job(error: BaseException, options: RunnerArguments) -> ComponentError:
    r"""Convert Beam's error about a job that failed on the engine: its cause in one line, of Python if there is one.

    >>> options = RunnerArguments.parse(["--runner=FlinkRunner"])
    >>> text = "Pipeline j failed in state FAILED: java.lang.Exception: a.B: Traceback (most recent call last):\n"
    >>> error = RuntimeError(text + "  File x\nValueError: no such op [while running 'y']\n\tat java")
    >>> failed_job(error, options).received
    "the job failed on FlinkRunner: ValueError: no such op [while running 'y']"
    """
    of_python = re.findall(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)", str(error))
    of_java = first_line(RuntimeError(str(error).partition("failed in state ")[2].partition(": ")[2] or str(error)))
    cause = of_python[-1] if of_python else re.sub(r"^(?:[\w$]+\.[\w.$]+: )+", "", of_java)
    fix = (
        "raise taskmanager.memory.managed.size in Flink's configuration: the rows of one shard are one record there"
        if "size of a sort buffer" in cause
        else "read the logs of the engine's workers; allow retries of the engine, if a worker was lost (in Flink's "
        "configuration, restart-strategy.type: fixed-delay)"
    )
    return ComponentError(f"the job failed on {options.runner}: {cause}", "a job that ends, with all its records", fix)


@contextlib.contextmanager
def _started_runner(arguments: Sequence[str], options: Any) -> Iterator[None]:
    """Start a job server for Beam's own runner, if the arguments need one; convert errors of the runner."""
    check_arguments(arguments)
    needs = RunnerArguments.parse(arguments)
    try:
        with _job_server(options, needs.runner) if needs.starts_job_server else contextlib.nullcontext():
            yield
    except RuntimeError as error:
        if "failed in state FAILED" in str(error):
            raise failed_job(error, needs) from error
        if "job server jar" in str(error):
            raise _download_error(error, needs, options.get_all_options()["jar_cache_dir"]) from error
        if "Service failed to start" in str(error):
            received = f"the job server of {needs.runner} ended with code {str(error).rpartition(' ')[2]}"
            fix = f"run it alone to read its messages: {needs.java} -jar {needs.jar or jar_name(needs.runner)}"
            raise ComponentError(received, f"Java 17 as {needs.java}, and a jar that is complete", fix) from error
        raise


def _download_error(error: BaseException, options: RunnerArguments, cache: str | None) -> ComponentError:
    """Convert Beam's error about a job server's jar that cannot be downloaded."""
    address = next((word.rstrip(":,.") for word in str(error).split() if word.startswith("http")), "")
    jar = address.rpartition("/")[2] or jar_name(options.runner)
    folder = cache or "~/.apache_beam/cache/jars"
    argument = "flink_job_server_jar" if options.runner == FLINK else "spark_job_server_jar"
    reason = str(error).partition(f"{address}: ")[2].partition(". ")[0] or str(error)
    expected = f"the jar of the job server in {folder}, or a connection to Maven Central, from which Beam downloads it"
    fix = f"copy the jar into this folder, or pass --beam-pipeline-arg=--{argument}=PATH"
    return ComponentError(f"{jar} of Maven Central (group org.apache.beam): {reason}", expected, fix)


@contextlib.contextmanager
def _job_server(options: Any, runner: str) -> Iterator[None]:
    """Start the job server of a runner and name it in Beam's options; stop it at the end.

    It ends with this process, too. Beam's own are stopped in an exit handler, which a killed process does not call, and
    by a signal handler, which Python refuses in other threads than the main one: TFX's Beam runner runs each component
    in such a thread.
    """
    from apache_beam.options.pipeline_options import FlinkRunnerOptions, PortableOptions
    from apache_beam.runners.portability.flink_runner import FlinkJarJobServer, FlinkRunner
    from apache_beam.runners.portability.spark_runner import SparkJarJobServer

    if runner == FLINK:
        flink = options.view_as(FlinkRunnerOptions)
        flink.flink_master = FlinkRunner.add_http_scheme(flink.flink_master)
    server = (FlinkJarJobServer if runner == FLINK else SparkJarJobServer)(options)
    portable, command_of_beam = options.view_as(PortableOptions), server.subprocess_cmd_and_endpoint

    def bound() -> tuple[list[str], str]:
        command, portable.job_endpoint = command_of_beam()
        return bound_command(*command), portable.job_endpoint

    server.subprocess_cmd_and_endpoint = bound
    try:
        server.start()
        yield
    finally:
        if portable.job_endpoint:  # Beam's `stop` fails without a process
            server.stop()


RUNNER = BeamRunner(check_arguments, _started_runner)
