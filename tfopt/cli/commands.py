"""The subcommands of ``tfopt``: list, describe and run, every component, and those of `tfopt.cli.kubeflow`."""

import argparse
import contextlib
import functools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tfopt.artifacts import Artifact, Benchmark, Decision, Drift, Evaluation, Pushed
from tfopt.cli import kubeflow, overview, runs, saved_plan
from tfopt.cli.arguments import (
    CommandParser,
    Subparsers,
    add_command,
    add_component_options,
    add_cost_options,
    add_json_option,
    add_list_option,
    check_positive,
)
from tfopt.cli.completion import add_completion
from tfopt.cli.destinations.approve import add_approve
from tfopt.cli.destinations.fleet import add_fleet
from tfopt.cli.destinations.history import add_history, add_promote, add_restore, add_withdraw
from tfopt.cli.destinations.notifications import add_notify, notified, run_folder
from tfopt.cli.destinations.verify import add_verify
from tfopt.cli.engines import ENGINES, check_engine, default_engine, load_plan, run_recorded
from tfopt.cli.init import add_init
from tfopt.cli.run_files.run_file import add_file_option
from tfopt.cli.run_files.run_file_schema import run_file_schema
from tfopt.cli.terminal.log_redirect import capture_library_logs
from tfopt.component import Component, find
from tfopt.dag import tracing
from tfopt.dag.dag import Dag, resolve_source
from tfopt.dag.outcome import Outcome
from tfopt.dag.planned_step import ALWAYS, PlannedStep, expected_time
from tfopt.dag.policy_checks import check_policies
from tfopt.dag.run_events import run_reported
from tfopt.data import beam_runner
from tfopt.errors import ComponentError
from tfopt.formatting import indented
from tfopt.kfp.container_entry import run_step
from tfopt.reports import report_schema
from tfopt.run_records.run_cost import describe_cost
from tfopt.run_records.run_record import find_run
from tfopt.run_records.unprofitable_runs import SKIPPED, SkipDecision, decide_skip, find_price
from tfopt.storage import remote_files
from tfopt.telemetry.delivery import exported
from tfopt.value_types import JsonObject

HAS_WORK, NOT_BLESSED, UNDECIDED = 2, 3, 4  # exit codes

log = logging.getLogger(__name__)


def use_values(parser: CommandParser, words: Sequence[str]) -> None:
    """Describe the values of the pipeline in the help of a command, and in the error for one that is no option."""
    name = next(filter(overview.is_pipeline, words), parser.get_default("pipeline"))
    if not name or not overview.is_pipeline(name):
        return
    if {"-h", "--help"} & set(words):
        dag = tracing.load(name)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = f"{dag.name}: {dag.description}\n\n{overview.describe_values(dag)}"

    def hint(option: str) -> str | None:
        dag, value = tracing.load(name), option.lstrip("-").replace("-", "_")
        return f"pass it as --set {value}=…" if value in dag.sources or value in dag.parameters else None

    parser.hint = hint


def _add_schema(subparsers: Subparsers) -> None:
    summary = "write the JSON schema of a pipeline's run files, for editors"
    description = (
        "Write the JSON schema of a pipeline's run files. An editor with a YAML language server uses it if the first "
        "line of the file is: # yaml-language-server: $schema=FILE.json"
    )
    parser = add_command(subparsers, "schema", _schema, summary, description)
    parser.add_argument("pipeline", help="a shipped pipeline, or a .py file")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="the file to write (default: print it)")


def _schema(arguments: argparse.Namespace) -> int:
    text = json.dumps(pipeline_schema(arguments.pipeline), indent=1)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(f"{text}\n")
    print(arguments.output or text)
    return 0


def pipeline_schema(pipeline: str) -> JsonObject:
    """Return the JSON schema of the run files of a pipeline."""
    subparsers = argparse.ArgumentParser().add_subparsers(prog="tfopt", parser_class=CommandParser)
    for name in RUN_FILE_COMMANDS:
        COMMANDS[name](subparsers)
    return run_file_schema(tracing.load(pipeline), list(subparsers.choices.values()))


def _add_run(subparsers: Subparsers) -> None:
    summary = "run a pipeline on this machine: retrain, optimize, …, or a .py file"
    description = "Run a pipeline on this machine. Unchanged steps of an earlier run are reused."
    epilog = f"pipelines: {', '.join(tracing.pipelines())}. Values of one: tfopt run NAME --help"
    parser = add_command(subparsers, "run", _run, summary, description, epilog=epilog)
    _add_run_options(parser, "print the outputs of each step as JSON", nargs="?")
    parser.set_defaults(usage_error=parser.error)
    text = "run what tfopt plan -o FILE.json planned; refused if inputs, code or earlier results changed since then"
    parser.add_argument("--plan", type=Path, metavar="FILE.json", help=text)


def _add_plan(subparsers: Subparsers) -> None:
    summary = "show which steps `tfopt run` would run or reuse, why, and for how long"
    description = (
        "Show what `tfopt run` would do with the same arguments: which steps it runs, and why it does not reuse their "
        "earlier results, with the time of their last execution in the run's folder. Nothing is written. TFX's engines "
        "have their own records in that folder: results of the engine process are not theirs."
    )
    parser = add_command(subparsers, "plan", _plan, summary, description)
    _add_run_options(parser, "print the steps as JSON")
    text = "write the plan, for: tfopt run --plan FILE.json"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help=text)
    text = f"end with exit code {HAS_WORK} if steps would run, except for those that run in every run; else with 0"
    parser.add_argument("--detailed-exitcode", action="store_true", help=text)


def _add_run_options(parser: CommandParser, json_help: str, nargs: Literal["?"] | None = None) -> None:
    text = "a shipped pipeline, or a .py file with a function of the file's name"
    parser.add_argument("pipeline", nargs=nargs, help=text)
    parser.add_argument("--root", type=Path, help="the run's folder (default: runs/PIPELINE)")
    engines = "; ".join(f"{name}: {explanation}" for name, explanation in ENGINES.items())
    reason = f"because TFX is {'' if default_engine() == 'beam' else 'not '}installed"
    text = f"{engines} (default: %(default)s, {reason})"
    parser.add_argument("--engine", choices=list(ENGINES), default=default_engine(), help=text)
    add_list_option(parser, "--set", "NAME=VALUE", "a source's path or a parameter's value")
    text = "an argument for the Beam components, such as --beam-pipeline-arg=--runner=DataflowRunner"
    add_list_option(parser, "--beam-pipeline-arg", "ARG", text)
    text = (
        "with --engine process: run at most N steps at the same time, and no more than fit into the memory "
        "(default: %(default)s, one after another). A step that measures time always runs alone"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help=text)
    add_cost_options(parser, SKIPPED)
    text = (
        f"end with exit code {NOT_BLESSED} if no model meets the goals, so that a CI job fails; "
        f"with {UNDECIDED} if the machine was too busy to compare speeds, and no other model was selected and blessed"
    )
    parser.add_argument("--require-blessing", action="store_true", help=text)
    add_json_option(parser, json_help)
    add_file_option(parser)


def _checked_values(dag: Dag, arguments: argparse.Namespace) -> dict[str, object]:
    """Return the values of the command line and the run file, and defaults, after the checks that need no engine."""
    from tfopt.dag.source_checks import check_sources  # imports NumPy

    check = functools.partial(_check_source, dag)
    values = vars(arguments).get("planned") or arguments.run_file.values(dag, arguments.set, check)
    remote_files.check_characters(str(run_folder(dag, arguments.root)))
    check_engine(arguments.engine)
    check_positive("--price", arguments.price)
    beam_runner.check_arguments(arguments.beam_pipeline_arg)
    if arguments.jobs < 1 or (arguments.jobs > 1 and arguments.engine != "process"):
        received = f"--jobs {arguments.jobs} with --engine {arguments.engine}"
        expected = "a number from 1, with --engine process: the others run one step after another"
        raise ComponentError(received, expected, "leave it out, or pass --engine process --jobs 1")
    types = {port.type for step in dag.steps.values() for port in step.component.outputs.values()}
    if arguments.require_blessing and Decision not in types:
        received = f"--require-blessing for {dag.name}"
        raise ComponentError(received, "a pipeline that selects a model", "leave it out, or add select_model")
    checked = dag.values(values)  # raises for a wrong value before the slow import of TFX
    for source in dag.sources:
        _check_source(dag, source, checked[source])
    check_sources(dag, checked)
    check_policies(dag, checked)
    if arguments.skip_unprofitable:
        Drift.open(arguments.skip_unprofitable)
        find_price(dag, checked, arguments.price)
    return checked


def _check_source(dag: Dag, name: str, value: Any) -> None:
    """Raise ComponentError if the value is that of a source and does not exist, or is no artifact of its type."""
    uri = resolve_source(dag.sources[name], value) if name in dag.sources else None
    if uri and remote_files.is_remote(uri):
        remote_files.check_exists(uri)


def _plan(arguments: argparse.Namespace) -> int:
    from tfopt.cli.terminal.plan_table import describe_evidence, plan_facts, print_plan  # imports rich

    dag = tracing.load(arguments.pipeline)
    values = _checked_values(dag, arguments)
    dag = dag.with_sources(values)
    steps = load_plan(arguments.engine)(dag, values, run_folder(dag, arguments.root))
    evidence = describe_evidence(dag, values, steps)
    if arguments.skip_unprofitable:
        evidence.append(_skip_decision(arguments, dag, values, steps).text)
    if arguments.output:
        saved_plan.make_plan(arguments, dag, values, run_folder(dag, arguments.root), steps).write(arguments.output)
    if arguments.json:
        print(json.dumps(plan_facts(steps, evidence), indent=1))
    else:
        print_plan(steps, evidence)
    has_work = any(step.action != "reuse" and step.reasons != [ALWAYS] for step in steps.values())
    return HAS_WORK if arguments.detailed_exitcode and has_work else 0


def _run(arguments: argparse.Namespace) -> int:
    if not arguments.plan and not arguments.pipeline:
        arguments.usage_error("the following arguments are required: pipeline, or --plan FILE.json")
    dag = _planned_dag(arguments) if arguments.plan else tracing.load(arguments.pipeline)
    if arguments.set == ["help"]:
        print(overview.describe_values(dag))
        return 0
    values, root = _checked_values(dag, arguments), run_folder(dag, arguments.root)
    dag = dag.with_sources(values)
    if arguments.plan:
        now = saved_plan.make_plan(arguments, dag, values, root, load_plan(arguments.engine)(dag, values, root))
        saved_plan.check_plan(arguments.plan, now)
    options = {"jobs": arguments.jobs} if arguments.engine == "process" else {}
    with notified(arguments.run_file, dag, values, root):
        if arguments.skip_unprofitable:
            decision = _skip_decision(arguments, dag, values, load_plan(arguments.engine)(dag, values, root))
            if decision.skip:
                print(json.dumps({"skipped": decision.text}, indent=1) if arguments.json else indented(decision.text))
                return SKIPPED
            log.info("%s", decision.text)
        options |= {"beam_args": arguments.beam_pipeline_arg}
        outcomes = run_recorded(dag, values, root, arguments.engine, arguments.price, **options)
    artifacts = [output for outcome in outcomes.values() for output in outcome.outputs.values()]
    if arguments.json:
        steps = {}
        for step, outcome in outcomes.items():
            outputs = {key: output.uri for key, output in outcome.outputs.items()}
            steps[step] = {"reused": outcome.reused, "seconds": outcome.seconds, "outputs": outputs}
        print(json.dumps(steps, indent=1))
    else:
        _print_results({type(artifact): artifact for artifact in artifacts})
        for name, output in last_outputs(dag, outcomes).items():
            print(indented(f"result: {output.path / output.page if output.page else output.uri} ({name})"))
        if cost := find_run(str(root), root)[1].cost:
            print(*map(indented, describe_cost(cost)), sep="\n")
        print(indented(f"all results: {root}"))
    decisions = [artifact for artifact in artifacts if isinstance(artifact, Decision)]
    return exit_code_of(decisions) if arguments.require_blessing else 0


def _skip_decision(
    arguments: argparse.Namespace, dag: Dag, values: Mapping[str, Any], steps: Mapping[str, PlannedStep]
) -> SkipDecision:
    """Return whether a run is skipped, whose planned steps take as long as in earlier runs."""
    price = find_price(dag, values, arguments.price)
    return decide_skip(price, Drift.open(arguments.skip_unprofitable), expected_time(steps)[0])


def _planned_dag(arguments: argparse.Namespace) -> Dag:
    """Return the DAG of a saved plan, whose arguments and values become those of the command."""
    if arguments.pipeline or arguments.set or arguments.root or arguments.run_file.entries:
        received = "--plan with a pipeline, --set, --root or -f"
        raise ComponentError(received, "a plan, which has them", "leave them out, or plan again with them")
    saved = report_schema.load(saved_plan.SavedPlan, arguments.plan)
    vars(arguments).update(saved.arguments(), planned=saved.values)
    return tracing.load(saved.pipeline)


def exit_code_of(decisions: Sequence[Decision]) -> int:
    """Return the exit code of a run whose model must be blessed."""
    reports = [decision.load() for decision in decisions]
    if any(report.is_undecided for report in reports):
        return UNDECIDED
    return 0 if all(report.blessed for report in reports) else NOT_BLESSED


def last_outputs(dag: Dag, outcomes: Mapping[str, Outcome]) -> dict[str, Artifact]:
    """Return the outputs of a run that no step reads, by name and step; none if it has a decision, which has a page."""
    if any(isinstance(output, Decision) for outcome in outcomes.values() for output in outcome.outputs.values()):
        return {}
    read = {output for step in dag.steps.values() for output in step.used_outputs}
    outputs = [output for step in dag.steps.values() for output in step.outputs.values() if output not in read]
    return {f"{each.output} of {each.step}": outcomes[each.step].outputs[each.output] for each in outputs}


def _print_results(artifacts: Mapping[type[Artifact], Any]) -> None:
    from tfopt.cli.terminal.summary_table import print_summary  # imports rich

    if {Decision, Evaluation, Benchmark} <= artifacts.keys():
        print_summary(artifacts[Decision], artifacts[Evaluation], artifacts[Benchmark])
        print(indented(f"report: {artifacts[Decision].path / Decision.page}"))
    if Pushed in artifacts:
        pushed = artifacts[Pushed].load()
        print(indented(f"pushed: {pushed.path}" if pushed.pushed else f"not pushed: {pushed.reason}"))


def add_component(subparsers: Subparsers, words: Sequence[str], debug: bool) -> None:
    """Add the subcommand of the component that ``words`` begins with.

    In a Kubeflow step, ``--executor-input MESSAGE`` stands for all other options.
    """
    component = find(words[0])
    parser = subparsers.add_parser(words[0])
    if words[1:2] == ["--executor-input"]:
        parser.add_argument("--executor-input", required=True)
        parser.add_argument("--same-artifact", action="append", default=[])
        parser.set_defaults(run_command=functools.partial(_run_kubeflow_step, component))
        return
    add_component_options(parser, component)
    add_json_option(parser, "print the outputs as JSON")
    if any(issubclass(port.type, Drift) for port in component.outputs.values()):
        text = "end with exit code 6 to recalibrate, 7 to retrain, and 0 if there is nothing to do"
        parser.add_argument("--detailed-exitcode", action="store_true", help=text)
    parser.set_defaults(run_command=functools.partial(_run_component, component, debug))


def _run_kubeflow_step(component: Component, arguments: argparse.Namespace) -> int:
    run_step(component, arguments.executor_input, dict(pair.split("=", 1) for pair in arguments.same_artifact))
    return 0


def _run_component(component: Component, debug: bool, arguments: argparse.Namespace) -> int:
    beam_runner.check_arguments(getattr(arguments, "beam_pipeline_arg", []))
    names = [*component.inputs, *component.outputs, *component.parameters]
    values = {name: value for name in names if (value := getattr(arguments, name, None)) is not None}
    library_logs = contextlib.nullcontext() if debug else capture_library_logs()
    with beam_runner.runner_arguments(getattr(arguments, "beam_pipeline_arg", [])), library_logs, exported():
        outputs = run_reported(component, values)
    if arguments.json:
        printed = {name: {"uri": output.uri, "metadata": output.metadata} for name, output in outputs.items()}
        print(json.dumps(printed, indent=1))
    else:
        for name, output in outputs.items():
            print(indented(f"{name}: {output.uri}"))
    reports = [output for output in outputs.values() if isinstance(output, Drift)]
    has_code = getattr(arguments, "detailed_exitcode", False)
    return max((report.exit_code() for report in reports), default=0) if has_code else 0


COMMANDS: dict[str, Callable[[Subparsers], None]] = {
    "run": _add_run,
    "plan": _add_plan,
    "compile": kubeflow.add_compile,
    "submit": kubeflow.add_submit,
    "schedule": kubeflow.add_schedule,
    "init": lambda subparsers: add_init(subparsers, pipeline_schema),
    "list": overview.add_list,
    "describe": overview.add_describe,
    "schema": _add_schema,
    "runs": runs.add_runs,
    "open": runs.add_open,
    "diff": runs.add_diff,
    "history": add_history,
    "fleet": add_fleet,
    "withdraw": add_withdraw,
    "restore": add_restore,
    "promote": add_promote,
    "approve": add_approve,
    "verify": add_verify,
    "notify": add_notify,
    "clean": runs.add_clean,
    "completion": add_completion,
}
RUN_FILE_COMMANDS = ("notify", "run", "plan", "compile", "submit", "schedule")
