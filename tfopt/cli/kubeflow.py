"""What ``tfopt`` does with Kubeflow: compile a DAG, submit it, schedule it."""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tfopt.cli.arguments import assigned
from tfopt.component import components
from tfopt.dag import tracing as trace
from tfopt.errors import ComponentError, nearest


def compile(words: list[str]) -> int:
    """``tfopt compile``."""
    parser = argparse.ArgumentParser(prog="tfopt compile", description="Write Kubeflow Pipelines v2 YAML.")
    parser.add_argument("pipeline", help="a shipped pipeline, a .py file, or a component (for its component.yaml)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.yaml", help="where to write")
    parser.add_argument(
        "--with",
        dest="sources",
        action="append",
        default=[],
        metavar="SOURCE",
        help="an optional source that the runs are given; the YAML has no others",
    )
    _add_how(parser)
    given = parser.parse_args(words)
    from tfopt.kfp import compiler as kfp
    from tfopt.kfp.images import Images
    from tfopt.kfp.pod_options import Options

    images, options = Images(given.image), Options(given.kfp_option)
    if options.service_account:
        raise ComponentError(
            "--kfp-option service_account", "an option that the YAML can hold", "pass it to tfopt submit or schedule"
        )
    given.output.parent.mkdir(parents=True, exist_ok=True)
    if given.pipeline in components():
        if given.kfp_option or given.sources:
            word = "--kfp-option" if given.kfp_option else "--with"
            raise ComponentError(
                f"{word} for {given.pipeline}",
                "a pipeline: what a component.yaml's step needs is said where it is used",
                f"leave {word} out",
            )
        kfp.compile_component(components()[given.pipeline], given.output, images)
    else:
        dag = trace.load(given.pipeline)
        for name in given.sources:
            if name not in dag.sources:
                raise ComponentError(f"--with {name}", "a source of the pipeline", nearest(name, dag.sources))
        kfp.compile_pipeline(dag, given.output, images, options, given.sources)
    print(given.output)
    return 0


def submit(words: list[str]) -> int:
    """``tfopt submit``: 0 when the run was started, or with ``--wait`` when it succeeded; 1 when it did not."""
    parser = argparse.ArgumentParser(
        prog="tfopt submit",
        description="Run a DAG on a Kubeflow Pipelines server.",
        epilog="exit code: 0 started (with --wait: succeeded), 1 refused or failed",
    )
    _add_what(parser)
    parser.add_argument("--name", help="of the run (default: the pipeline and the time)")
    parser.add_argument("--wait", action="store_true", help="tell every change of state, until the run ends")
    given = parser.parse_args(words)
    server, uploaded, options = _upload(given)
    from tfopt.kfp.submit import run, wait

    name = given.name or f"{Path(given.pipeline).stem} {datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    run_id = run(server, uploaded, name, options)
    facts = {"run": run_id, "name": name, "url": f"{server.endpoint}/#/runs/details/{run_id}"}
    if not given.json:
        print(f"run: {facts['url']}", flush=True)
    if given.wait:
        try:
            facts["state"] = wait(server, run_id)
        except KeyboardInterrupt:
            print(f"no longer watched; the run goes on: {facts['url']}")
            return 130
    if given.json:
        print(json.dumps(facts, indent=1))
    return 0 if facts.get("state", "SUCCEEDED") == "SUCCEEDED" else 1


def schedule(words: list[str]) -> int:
    """``tfopt schedule``."""
    parser = argparse.ArgumentParser(
        prog="tfopt schedule",
        description="Run a DAG again and again on a Kubeflow Pipelines server: one schedule to a name, one run at a "
        "time, none for the times that were missed. The same command again changes what is there.",
    )
    _add_what(parser, optional=True)
    parser.add_argument(
        "--cron", help='six fields, in UTC: second minute hour day month weekday, such as "0 0 3 * * 1"'
    )
    parser.add_argument("--name", help="of the schedule (default: the pipeline's)")
    verbs = parser.add_mutually_exclusive_group()
    for verb, text in (
        ("pause", "start no more runs"),
        ("resume", "start runs again"),
        ("delete", "remove the schedule"),
        ("list", "show all schedules"),
    ):
        verbs.add_argument(f"--{verb}", dest="verb", action="store_const", const=verb, help=text)
    given = parser.parse_args(words)
    name = given.name or (Path(given.pipeline).stem if given.pipeline else None)
    if given.verb == "list":
        return _list(given)
    if name is None or (given.verb is None and not (given.pipeline and given.cron)):
        parser.error("give PIPELINE and --cron; or --list; or --pause, --resume or --delete with --name")
    return _act(given, name) if given.verb else _put(given, name)


def _put(given: argparse.Namespace, name: str) -> int:
    from tfopt.kfp.cron import Cron

    cron = Cron.parse(given.cron)
    server, uploaded, options = _upload(given)
    from tfopt.kfp.recurring_runs import put

    done = put(server, name, cron, uploaded, options)
    times = [time.isoformat() for time in cron.next(datetime.now(UTC))]
    if given.json:
        print(json.dumps({"name": name, "done": done.what, "paused": done.paused, "next": times}, indent=1))
        return 0
    print(f"{done.what}: {name}: {cron.words} (UTC)")
    print("paused; --resume starts it" if done.paused else "next: " + ", ".join(times))
    return 0


def _act(given: argparse.Namespace, name: str) -> int:
    from tfopt.kfp import recurring_runs as schedules

    getattr(schedules, given.verb)(_server(given), name)
    print(json.dumps({"name": name, "done": given.verb}) if given.json else f"{given.verb}d: {name}")
    return 0


def _list(given: argparse.Namespace) -> int:
    from tfopt.kfp.cron import Cron
    from tfopt.kfp.recurring_runs import listed

    found = listed(_server(given))
    if given.json:
        print(json.dumps(found, indent=1))
        return 0
    for one in found:
        words = Cron.parse(one["cron"]).words if one["cron"] else "no cron expression"
        print(f"{one['name']}  {one['cron']}  {words}{'  paused' if one['paused'] else ''}")
    return 0


def _upload(given: argparse.Namespace) -> tuple[Any, Any, Any]:
    from tfopt.kfp.images import Images
    from tfopt.kfp.pod_options import Options
    from tfopt.kfp.submit import arguments, upload

    dag = trace.load(given.pipeline)
    images, options, values = Images(given.image), Options(given.kfp_option), assigned(dag, given.set)
    options.check(dag)
    arguments(dag, values)  # what is wrong here is told before the server is asked
    server = _server(given)
    return server, upload(server, dag, values, images, options, given.experiment), options


def _server(given: argparse.Namespace) -> Any:
    from tfopt.kfp.client import Server

    return Server(given.endpoint, given.token_file, given.namespace)


def _add_what(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    parser.add_argument("pipeline", nargs="?" if optional else None, help="a shipped pipeline, or a .py file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a source's address or a parameter's value"
    )
    _add_how(parser)
    parser.add_argument("--endpoint", required=True, metavar="URL", help="the server, or in-cluster")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="holds a bearer token (default: the variable KFP_TOKEN)"
    )
    parser.add_argument("--namespace", help="your profile's, on a server of several users")
    parser.add_argument("--experiment", help="the experiment (default: the pipeline's name)")
    parser.add_argument("--json", action="store_true", help="print for machines")


def _add_how(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="[KIND=]REF",
        help="the image of the steps; {kind} in it stands for each step's kind; @sha256:… pins it",
    )
    parser.add_argument(
        "--kfp-option",
        action="append",
        default=[],
        metavar="[STEP:]KEY=VALUE",
        help="how steps run: cpu, memory, gpu, retries, timeout, env.NAME, toleration, … (docs/kubeflow.md)",
    )
