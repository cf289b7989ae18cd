"""Jinja templates of the HTML reports."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2

import tfopt
from tfopt.formatting import visible


@functools.lru_cache(maxsize=16)  # compiling one takes 50 ms
def report_template(folder: Path, **filters: Callable[..., Any]) -> jinja2.Template:
    """Return ``report.html.j2`` of a folder, which extends ``page.html.j2``; nothing in texts of inputs is HTML."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, Path(__file__).parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # Markup is a class of its own
    )
    environment.filters |= filters
    environment.globals["version"] = tfopt.__version__
    return environment.get_template("report.html.j2")
