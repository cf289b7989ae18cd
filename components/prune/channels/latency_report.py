"""Page with the table of latencies of a pruned model, and a picture."""

from pathlib import Path

from tfopt.charts.axis import create_axis
from tfopt.charts.figure import draw_safely
from tfopt.charts.letter_rows import Letter, draw_letters
from tfopt.charts.page_templates import report_template
from tfopt.components.prune.channels.latency_table import GroupLatency, LatencyTable

PAGE = "latency.html"  # next to the model
SERIES = (("f", "the fewest channels", "bad"), ("h", "half", "accent"), ("q", "three quarters", "baseline"))
MOST = 40  # groups in the picture, those that save most


def render_html(table: LatencyTable, name: str) -> str:
    """Return the page of the model ``name`` as a self-contained HTML document."""
    return report_template(Path(__file__).parent.parent).render(
        **vars(table),
        name=name,
        shown=min(MOST, len(table.groups)),
        letters={letter: meaning for letter, meaning, _ in SERIES},
        charts=draw_safely("the picture of the latencies", lambda: _draw(table)),
    )


def _draw(table: LatencyTable) -> list[str]:
    """Draw the latency that each group saves with fewer channels, in both widths."""
    measured = [group for group in table.groups if group.latencies]
    largest = sorted(measured, key=lambda group: min(group.latencies.values()))[:MOST]
    groups = [group for group in measured if group in largest][::-1]  # from the top in the order of the model
    letters = [
        Letter(1 - latency, row, *_letter(group.channels, channels))
        for row, group in enumerate(groups)
        for channels, latency in group.latencies.items()
    ]
    values = [letter.value for letter in letters]
    return draw_letters(
        letters,
        [(_first(group), f"({group.channels})") for group in groups],
        create_axis([0.0, *values], least=0.01),
        key="latencies",
        title="Latency that each group of channels saves",
        across="latency saved (fraction)",
        description="; ".join(
            f"{_first(group)}: "
            + ", ".join(f"{1 - latency:.1%} with {channels}" for channels, latency in group.latencies.items())
            for group in groups
        ),
    )


def _first(group: GroupLatency) -> str:
    return group.makers.split(",")[0]


def _letter(channels: int, remaining: int) -> tuple[str, str]:
    fraction = remaining / channels
    letter, _, color = SERIES[0 if fraction < 0.4 else 1 if fraction < 0.65 else 2]
    return letter, color
