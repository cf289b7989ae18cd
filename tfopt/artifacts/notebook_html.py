"""Parts of what a notebook shows: tables and report pages as HTML, without scripts and outside requests."""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfopt.formatting import visible

FRAME_STYLE = "width: 100%; height: 40rem; border: 1px solid #8886; resize: vertical"


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; texts are escaped.

    >>> table("Speed", ["model", "p50"], [["<a>", 1]])
    '<table><caption>Speed</caption><thead><tr><th>model</th><th>p50</th></tr></thead><tbody><tr><td>&lt;a&gt;</td><td>1</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    lines = ("".join(f"<td>{_text(cell)}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    title = f"<caption>{_text(caption)}</caption>"
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def frame(page: Path) -> str:
    """Return an HTML page inside a frame that runs no scripts, so that its styles do not change the notebook."""
    content = html.escape(page.read_text(encoding="utf-8"))
    return f'<iframe sandbox title="{_text(page)}" style="{FRAME_STYLE}" srcdoc="{content}"></iframe>'


def _text(value: object) -> str:
    return html.escape(visible(str(value)))
