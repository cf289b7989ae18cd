"""The subcommands for Kubeflow: compile a pipeline or component, submit a pipeline, schedule a pipeline."""

import argparse
import json
import logging
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tfopt.artifacts import Drift
from tfopt.cli.arguments import (
    Subparsers,
    add_command,
    add_cost_options,
    add_json_option,
    add_list_option,
    check_positive,
)
from tfopt.cli.run_files.run_file import add_file_option
from tfopt.component import components
from tfopt.dag import tracing
from tfopt.dag.dag import Dag
from tfopt.dag.policy_checks import check_policies
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.formatting import indented
from tfopt.kfp.images import Images
from tfopt.kfp.placement import place_steps
from tfopt.kfp.pod_options import KUBEFLOW, VERTEX, Options, parse_time
from tfopt.run_records.kubeflow_cost import RunCosts
from tfopt.run_records.run_cost import describe_cost
from tfopt.run_records.unprofitable_runs import SKIPPED, find_price

log = logging.getLogger(__name__)

# kfp is imported in the functions that need it, because a container of a step has no kfp.


def add_compile(subparsers: Subparsers) -> None:
    """Add ``tfopt compile``."""
    summary = "write a pipeline or component as Kubeflow Pipelines v2 YAML"
    parser = add_command(subparsers, "compile", _compile, summary, "Write Kubeflow Pipelines v2 YAML.")
    parser.add_argument("pipeline", help="a shipped pipeline, a .py file, or a component (for its component.yaml)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.yaml", help="the file to write")
    text = "an optional source that the runs get; the YAML has no others"
    add_list_option(parser, "--with", "SOURCE", text, dest="sources")
    text = "the address of a source, or a parameter's value, in runs that do not set another one"
    add_list_option(parser, "--set", "NAME=VALUE", text)
    text = "of a component: the number of artifacts of a list input, such as candidates=5 (default: 1)"
    add_list_option(parser, "--count", "INPUT=N", text)
    text = "of a pipeline: write a component for another pipeline; its inputs and outputs are artifacts"
    parser.add_argument("--as-component", action="store_true", help=text)
    text = (
        "where it will run: Vertex AI Pipelines takes no Kubernetes settings, which are then checked and left out "
        "(default: %(default)s)"
    )
    parser.add_argument("--target", choices=[KUBEFLOW, VERTEX], default=KUBEFLOW, help=text)
    _add_step_options(parser)
    add_file_option(parser)


def _compile(arguments: argparse.Namespace) -> int:
    from tfopt.kfp import compiler  # imports KFP

    images, options = Images(arguments.image), Options(arguments.kfp_option)
    if options.service_account:
        received = "--kfp-option service_account"
        raise ComponentError(received, "an option that the YAML can hold", "pass it to tfopt submit or schedule")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    if arguments.pipeline in components():
        options_of_pipelines = {
            "--kfp-option": arguments.kfp_option,
            "--with": arguments.sources,
            "--set": arguments.set or arguments.run_file.entries.get("values"),
            "--as-component": arguments.as_component,
            "--target": arguments.target if arguments.target != KUBEFLOW else None,
        }
        for option in (option for option, value in options_of_pipelines.items() if value):
            expected = "a pipeline: the pipeline that uses a component.yaml sets the options of its step"
            raise ComponentError(f"{option} for {arguments.pipeline}", expected, f"leave {option} out")
        counts = dict(map(_parse_count, arguments.count))
        compiler.compile_component(components()[arguments.pipeline], arguments.output, images, counts)
    else:
        dag = _load_dag(arguments)
        if arguments.count:
            raise ComponentError("--count for a pipeline", "a component", "leave it out: the DAG has the counts")
        for name in arguments.sources:
            if name not in dag.sources:
                raise ComponentError(f"--with {name}", "a source of the pipeline", nearest(name, dag.sources))
        compiler.compile_pipeline(
            *(dag, arguments.output, images, options, arguments.sources),
            as_component=arguments.as_component,
            defaults=_values(dag, arguments),
            target=arguments.target,
        )
    print(arguments.output)
    return 0


def _parse_count(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not count.isdecimal():
        raise ComponentError(f"--count {text}", "INPUT=N", "write for example --count candidates=5")
    return name, int(count)


def add_submit(subparsers: Subparsers) -> None:
    """Add ``tfopt submit``."""
    epilog = f"exit code: 0 started (with --wait: succeeded), 1 refused or failed, {SKIPPED} skipped"
    summary = "run a pipeline on a Kubeflow Pipelines server"
    parser = add_command(subparsers, "submit", _submit, summary, epilog=epilog)
    _add_server_options(parser)
    parser.add_argument("--name", help="the run's name (default: the pipeline and the time)")
    parser.add_argument("--wait", action="store_true", help="print every change of state, until the run ends")
    text = "with --wait: exit with 1 if a pod has not started after this time, such as 10m (default: 1h)"
    parser.add_argument("--start-timeout", metavar="TIME", default="1h", help=text)
    add_cost_options(parser, SKIPPED)
    parser.add_argument("--gpu-price", type=float, help="price of an hour of a node with GPUs, for steps with one")


def _submit(arguments: argparse.Namespace) -> int:
    start_timeout = parse_time("--start-timeout", arguments.start_timeout)
    costs = _run_costs(arguments)
    server, uploaded, options = _upload(arguments)
    from tfopt.kfp.submit import find_last_run, start_run, wait_for_run  # imports KFP

    if costs and arguments.skip_unprofitable:
        decision = costs.decide_skip(
            find_last_run(server, uploaded), uploaded.tasks, Drift.open(arguments.skip_unprofitable)
        )
        if decision.skip:
            print(json.dumps({"skipped": decision.text}, indent=1) if arguments.json else indented(decision.text))
            return SKIPPED
        log.info("%s", decision.text)
    name = arguments.name or f"{Path(arguments.pipeline).stem} {datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    run_id = start_run(server, uploaded, name, options)
    facts = {"run": run_id, "name": name, "url": f"{server.endpoint}/#/runs/details/{run_id}"}
    if not arguments.json:
        print(f"run: {facts['url']}", flush=True)
    if arguments.wait:
        try:
            run = wait_for_run(server, run_id, start_timeout)
        except KeyboardInterrupt:
            print(f"no longer watched; the run continues: {facts['url']}")
            return 130
        facts["state"] = str(run.state)
        if costs:
            cost = costs.of(run, uploaded.tasks)
            facts["cost"] = asdict(cost)
            if not arguments.json:
                print(*map(indented, describe_cost(cost)), sep="\n")
    if arguments.json:
        print(json.dumps(facts, indent=1))
    return 0 if facts.get("state", "SUCCEEDED") == "SUCCEEDED" else 1


def _run_costs(arguments: argparse.Namespace) -> RunCosts | None:
    """Return what computes the cost of the run, with the state of the destination before it; None without a price."""
    for option in ("price", "gpu_price"):
        check_positive(f"--{option.replace('_', '-')}", getattr(arguments, option))
    if arguments.price is None:
        if arguments.skip_unprofitable:
            received = "--skip-unprofitable without --price"
            raise ComponentError(received, "the price of an hour of a node of the cluster", "add --price 0.40")
        return None
    if not arguments.wait and not arguments.skip_unprofitable:
        return None
    dag = _load_dag(arguments)
    values = {name: parameter.default for name, parameter in dag.parameters.items() if not parameter.required}
    values |= _values(dag, arguments)
    placed = place_steps(dag, Images(arguments.image), Options(arguments.kfp_option))
    if arguments.skip_unprofitable:
        Drift.open(arguments.skip_unprofitable)
        find_price(dag, values, arguments.price)
    return RunCosts(dag, values, placed, arguments.price, arguments.gpu_price)


def add_schedule(subparsers: Subparsers) -> None:
    """Add ``tfopt schedule``."""
    summary = "run a pipeline on a Kubeflow Pipelines server at the times of a cron expression"
    description = (
        "Run a pipeline repeatedly on a Kubeflow Pipelines server. A name has one schedule. One run is active at a "
        "time, and missed times are skipped. The same command with other values replaces the schedule."
    )
    parser = add_command(subparsers, "schedule", lambda arguments: _schedule(parser, arguments), summary, description)
    _add_server_options(parser, pipeline_optional=True)
    text = 'six fields, in UTC: second minute hour day month weekday, such as "0 0 3 * * 1"'
    parser.add_argument("--cron", help=text)
    parser.add_argument("--name", help="the schedule's name (default: the pipeline's)")
    actions = parser.add_mutually_exclusive_group()
    for action, text in (
        ("pause", "start no more runs"),
        ("resume", "start runs again"),
        ("delete", "remove the schedule"),
        ("list", "show all schedules"),
    ):
        actions.add_argument(f"--{action}", dest="action", action="store_const", const=action, help=text)


def _schedule(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    name = arguments.name or (Path(arguments.pipeline).stem if arguments.pipeline else None)
    if arguments.action == "list":
        return _list_schedules(arguments)
    if name is None or (arguments.action is None and not (arguments.pipeline and arguments.cron)):
        parser.error("give PIPELINE and --cron; or --list; or --pause, --resume or --delete with --name")
    return _change_schedule(arguments, name) if arguments.action else _put_schedule(arguments, name)


def _put_schedule(arguments: argparse.Namespace, name: str) -> int:
    from tfopt.kfp.cron import Cron  # imports croniter

    with arguments.run_file.naming("cron", arguments.cron):
        cron = Cron.parse(arguments.cron)
    server, uploaded, options = _upload(arguments)
    from tfopt.kfp.recurring_runs import put_schedule  # imports KFP

    action, paused = put_schedule(server, name, cron, uploaded, options)
    times = [time.isoformat() for time in cron.next(datetime.now(UTC))]
    if arguments.json:
        print(json.dumps({"name": name, "done": action, "paused": paused, "next": times}, indent=1))
        return 0
    print(f"{action}: {name}: {cron.words} (UTC)")
    print("paused; --resume starts it" if paused else "next: " + ", ".join(times))
    return 0


def _change_schedule(arguments: argparse.Namespace, name: str) -> int:
    from tfopt.kfp.recurring_runs import change_schedule  # imports KFP

    change_schedule(_server(arguments), name, arguments.action)
    print(json.dumps({"name": name, "done": arguments.action}) if arguments.json else f"{arguments.action}d: {name}")
    return 0


def _list_schedules(arguments: argparse.Namespace) -> int:
    from tfopt.kfp.cron import Cron  # imports croniter
    from tfopt.kfp.recurring_runs import list_schedules  # imports KFP

    schedules = list_schedules(_server(arguments))
    if arguments.json:
        print(json.dumps(schedules, indent=1))
        return 0
    for schedule in schedules:
        words = Cron.parse(schedule["cron"]).words if schedule["cron"] else "no cron expression"
        print(f"{schedule['name']}  {schedule['cron']}  {words}{'  paused' if schedule['paused'] else ''}")
    return 0


def _upload(arguments: argparse.Namespace) -> tuple[Any, Any, Any]:
    from tfopt.kfp.submit import run_parameters, stage_sources, upload  # imports KFP

    dag = _load_dag(arguments)
    images, options = Images(arguments.image), Options(arguments.kfp_option)
    values = _values(dag, arguments)
    options.check(dag)
    if arguments.stage:
        server = _server(arguments)
        values = stage_sources(dag, values, arguments.stage)
    else:
        run_parameters(dag, values)  # raises for a wrong value before the first request to the server
        server = _server(arguments)
    return server, upload(server, dag, values, images, options, arguments.experiment), options


def _values(dag: Dag, arguments: argparse.Namespace) -> dict[str, object]:
    """Return the checked values of ``--set`` and of a run file, in which the cluster must be able to read sources."""
    from tfopt.kfp.compiler import check_address  # imports KFP

    def check(name: str, value: Any) -> None:
        if name in dag.sources and not getattr(arguments, "stage", None):
            check_address(name, value)

    values: dict[str, object] = arguments.run_file.values(dag, arguments.set, check)
    defaults = {name: parameter.default for name, parameter in dag.parameters.items() if not parameter.required}
    dag.check_values(defaults | values)
    optional = dict.fromkeys(getattr(arguments, "sources", ()), "")
    check_policies(dag, defaults | optional | values)
    return values


def _load_dag(arguments: argparse.Namespace) -> Dag:
    dag = tracing.load(arguments.pipeline)
    return replace(dag, name=arguments.pipeline_name) if arguments.pipeline_name else dag


def _server(arguments: argparse.Namespace) -> Any:
    from tfopt.kfp.client import Server  # imports KFP

    return Server(arguments.endpoint, arguments.token_file, arguments.namespace)


def _add_server_options(parser: argparse.ArgumentParser, *, pipeline_optional: bool = False) -> None:
    nargs = "?" if pipeline_optional else None
    parser.add_argument("pipeline", nargs=nargs, help="a shipped pipeline, or a .py file")
    add_list_option(parser, "--set", "NAME=VALUE", "a source's address or a parameter's value")
    text = "upload local sources below s3://BUCKET/FOLDER or gs://…, once per content, and pass their addresses"
    parser.add_argument("--stage", metavar="ADDRESS", help=text)
    _add_step_options(parser)
    parser.add_argument("--endpoint", required=True, metavar="URL", help="the server's address, or in-cluster")
    text = "a file with a bearer token (default: the variable KFP_TOKEN)"
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=text)
    parser.add_argument("--namespace", help="the namespace of your profile, on a multi-user server")
    parser.add_argument("--experiment", help="the experiment (default: the pipeline's name)")
    add_json_option(parser)
    add_file_option(parser)


def _add_step_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pipeline-name", metavar="NAME", help="the pipeline's name on the server (default: its own)")
    text = "the image of the steps; {kind} in it stands for each step's kind; @sha256:… pins it"
    add_list_option(parser, "--image", "[KIND=]REF", text)
    text = "how steps run: cpu, memory, gpu, image, retries, timeout, env.NAME, toleration, … (docs/kubeflow.md)"
    add_list_option(parser, "--kfp-option", "[STEP:]KEY=VALUE", text)
