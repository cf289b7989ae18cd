"""The report for people: lines for a terminal, and one self-contained page."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2

import tfopt
from tfopt.formatting import count, data_size

LONGEST = 10
CALLS = re.compile(r"\b(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")


def text(found: Mapping[str, Any]) -> str:
    """What was found, in lines of plain text."""
    return "\n".join(_lines(found)) + "\n"


def page(found: Mapping[str, Any]) -> str:
    """What was found, as HTML with everything in it."""
    here = Path(__file__).parent
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    pages.filters |= {"count": count, "size": data_size, "percent": percent, "scopes": scopes}
    css = (here / "report.css").read_text()
    return pages.get_template("report.html.j2").render(css=css, version=tfopt.__version__, **found)


def percent(fraction: float | None) -> str:
    """A fraction in percent; a dash where there is none.

    >>> percent(0.9951), percent(None)
    ('99.5%', '-')
    """
    return "-" if fraction is None else f"{100 * fraction:.1f}%"


def scopes(words: str) -> str:
    """Names of nodes without the scopes of calls around the model, which say nothing and fill a line.

    >>> scopes("follows 'StatefulPartitionedCall_1/PartitionedCall/model/relu'")
    "follows 'model/relu'"
    """
    return CALLS.sub("", words)


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    flops, norms, sparsity = found["flops"], found["batch_norms"], found["sparsity"]
    yield f"{found['model']}, {found['signature']}: {_named(found['inputs'])} -> {_named(found['outputs'])}"
    if found["assumed"]:
        yield f"  counted for one example, with {_named(found['assumed'])}"
    yield f"  parameters     {count(found['parameters']['count'])} ({data_size(found['parameters']['bytes'])})"
    yield f"  operations     {count(flops['total'])}FLOP, {data_size(found['bytes_moved'])} moved"
    if flops["not_counted"]:
        yield f"    not counted  {_counts(flops['not_counted'])}"
    yield f"  ops            {_counts(found['ops'])}"
    yield f"  batch norms    {norms['found']} found, {norms['foldable']} can be folded"
    for one in norms["stay"][:LONGEST]:
        yield f"    stays        {scopes(one['batch_norm'])}: {scopes(one['why'])}"
    for name, what in (("quantizable", "integer kernels"), ("xnnpack", "XNNPACK")):
        covered = found[name]
        yield f"  {name:<14} {percent(covered['flops'])} of the work, {percent(covered['ops'])} of the ops ({what})"
        if covered["left_out"]:
            yield f"    left out     {_counts(covered['left_out'])}"
    yield f"  channels       {len(found['channels'])} kernels with channels that are no multiple of 8"
    yield f"  sparsity       {percent(sparsity['fraction'])} zeros, {sparsity['two_of_four']} kernels of 2:4"
    yield from _backbones(found["backbones"])


def _backbones(found: Mapping[str, Any]) -> Iterator[str]:
    budget = ", ".join(f"{value:g} {name}" for name, value in found["budget"].items() if value is not None)
    if budget:
        yield f"  budget         {budget}: this model {'fits' if found['model_fits'] else 'does not fit'}"
    if found["task"] is None:
        yield f"  backbones      none offered: {found['reason']}"
        return
    names = ", ".join(row["name"] for row in found["fitting"][:LONGEST]) or "none of those known"
    yield f"  backbones      lighter for {found['task']}{', within the budget' if budget else ''}: {names}"


def _named(specs: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {spec}" for name, spec in specs.items())


def _counts(found: Mapping[str, int]) -> str:
    shown = [f"{number} {name}" for name, number in list(found.items())[:LONGEST]]
    return ", ".join(shown) + (f" and {len(found) - LONGEST} more" if len(found) > LONGEST else "")
