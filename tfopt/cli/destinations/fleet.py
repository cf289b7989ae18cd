"""The subcommand ``fleet``: the state of many destinations, as a table, as a page and as JSON."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tfopt import formatting
from tfopt.cli.arguments import Subparsers, add_command, add_json_option, check_positive
from tfopt.errors import ComponentError
from tfopt.fleet.destination_state import Destination, DestinationState
from tfopt.fleet.fleet_report import FleetReport, read_fleet
from tfopt.fleet.metrics_file import fleet_samples, write_metrics
from tfopt.formatting import visible
from tfopt.reports import report_schema
from tfopt.telemetry.delivery import send_samples

NEEDS_ATTENTION = 2  # exit code
KEYS = ("destination", "name", "price", "requests_per_second")


def add_fleet(subparsers: Subparsers) -> None:
    """Add ``tfopt fleet``."""
    summary = "show many destinations at once: what is served, since when, and what needs attention"
    description = (
        "Show the state of many destinations, from their run histories alone: the served version and its age, the last "
        "verdict, quality and latency over time with regressions, schedules that do not run any more, versions of "
        "tfopt and libraries, signatures, cost, and upgrades of runtimes that pay. FILE.yaml has a list of "
        "destinations, each an address, or a mapping with the keys destination, name, price (of a node "
        "for an hour) and requests_per_second (at the busiest time)."
    )
    parser = add_command(subparsers, "fleet", _fleet, summary, description)
    text = "folders or addresses of pushed versions"
    parser.add_argument("destinations", nargs="*", metavar="DESTINATION", help=text)
    parser.add_argument("-f", "--file", type=Path, metavar="FILE.yaml", help="a file with a list of destinations")
    parser.add_argument("--price", type=float, help="price of a node for an hour, for destinations without their own")
    text = "days without a push from which on a destination needs attention (default: %(default)s)"
    parser.add_argument("--stale-days", type=float, default=30.0, metavar="N", help=text)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.html", help="write the page with all of it")
    text = "write metrics of Prometheus, for the textfile collector of its node exporter (pip install 'tfopt[metrics]')"
    parser.add_argument("--metrics", type=Path, metavar="FILE.prom", help=text)
    text = f"end with exit code {NEEDS_ATTENTION} if a destination needs attention; else with 0"
    parser.add_argument("--detailed-exitcode", action="store_true", help=text)
    add_json_option(parser)


def _fleet(arguments: argparse.Namespace) -> int:
    destinations = [Destination(address, address) for address in arguments.destinations]
    if arguments.file:
        destinations += read_file(arguments.file)
    if not destinations:
        fix = "write tfopt fleet DESTINATION …, or tfopt fleet -f FILE.yaml"
        raise ComponentError("no destination", "at least one", fix)
    if repeated := [one.name for number, one in enumerate(destinations) if one.name in _names(destinations[:number])]:
        raise ComponentError(f"{repeated[0]} twice", "destinations with different names", "name each one once")
    for name, value in (("--price", arguments.price), ("--stale-days", arguments.stale_days)):
        check_positive(name, value)
    priced = [replace(one, price=arguments.price if one.price is None else one.price) for one in destinations]
    report = read_fleet(priced, arguments.stale_days)
    if arguments.output:
        from tfopt.fleet.page import render_page  # imports Jinja

        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(render_page(report), encoding="utf-8")
    samples = fleet_samples(report)
    if arguments.metrics:
        write_metrics(samples, arguments.metrics)
    send_samples(samples)
    if arguments.json:
        print(json.dumps(report_schema.dump(report), indent=1))
    else:
        _print_table(report)
        if arguments.output:
            print(visible(f"page: {arguments.output}"))
    has_problems = any(state.problems for state in report.destinations)
    return NEEDS_ATTENTION if arguments.detailed_exitcode and has_problems else 0


def _names(destinations: Sequence[Destination]) -> list[str]:
    return [destination.name for destination in destinations]


def read_file(file: Path) -> list[Destination]:
    """Read the destinations of a file; relative folders are relative to it."""
    from tfopt.declaration.yaml_entries import Entry, read_entries  # imports PyYAML

    def number(entry: Entry | None) -> float | None:
        if entry is None:
            return None
        try:
            value = float(entry.text())
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise entry.error(f"{entry.name}: {entry.text()}", "a number above 0", f"write {entry.name}: 1.5")
        return value

    def destination(entry: Entry) -> Destination:
        if isinstance(entry.content, str):
            return Destination(entry.path(), entry.text())
        keys = entry.mapping(KEYS)
        if "destination" not in keys:
            raise entry.error(f"only {', '.join(keys)}", "the key destination", "add destination: FOLDER or address")
        address = keys["destination"]
        name = keys["name"].text() if "name" in keys else address.text()
        return Destination(address.path(), name, number(keys.get("price")), number(keys.get("requests_per_second")))

    entries = read_entries([file])
    items = entries.mapping(["destinations"]).get("destinations")
    if items is None or not isinstance(items.content, list):
        fix = "write destinations: and below it a line - ADDRESS for each"
        raise entries.error("no list destinations", "a list of destinations", fix)
    return [destination(item) for item in items.content]


def _print_table(report: FleetReport) -> None:
    from rich.text import Text

    from tfopt.cli.terminal.tables import OutputConsole, plain_table  # imports rich
    from tfopt.fleet.page import order  # imports Jinja

    table = plain_table()
    for title in ("destination", "version", "pushed", "selected", "quality", "latency"):
        table.add_column(title, no_wrap=title != "destination", overflow="fold")
    table.add_column("needs attention", ratio=1, overflow="fold")
    for state in order(report.destinations):
        table.add_row(*(Text(visible(cell)) for cell in _cells(state)))
    OutputConsole().print(table)
    for upgrade in report.upgrades:
        if upgrade.pays:
            gain = formatting.ratio(upgrade.speedup, upgrade.low, upgrade.high)
            names = ", ".join(upgrade.waiting[:5]) + (" and others" if len(upgrade.waiting) > 5 else "")
            change = f"{upgrade.package} {upgrade.old} -> {upgrade.new}"
            print(
                visible(
                    f"upgrade that pays: {change}, {gain} as fast in {upgrade.pairs} destinations; not yet: {names}"
                )
            )
    count = sum(bool(state.problems) for state in report.destinations)
    print(f"{count} of {len(report.destinations)} destinations need attention")


def _cells(state: DestinationState) -> tuple[str, ...]:
    values = [formatting.amount(metric.metric, metric.values[-1]) for metric in state.metrics]
    quality, latency = [*values, formatting.DASH, formatting.DASH][:2]
    version = str(state.version) if state.version is not None else formatting.DASH
    if state.canary is not None:
        version = f"{version}, canary {state.canary} ({state.share}%)"
    pushed = state.pushed[:10] if state.pushed else formatting.DASH
    return state.name, version, pushed, state.model or formatting.DASH, quality, latency, "; ".join(state.problems)
