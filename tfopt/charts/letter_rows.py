"""Chart with a row for each item, and its values as letters: colors alone do not tell them apart."""

from collections.abc import Sequence
from typing import NamedTuple

import lets_plot as lp

from tfopt.charts.axis import Axis
from tfopt.charts.figure import COLORS, TEXT_SIZE, WIDTHS, page_theme, plain, render
from tfopt.formatting import shorten_names


class Letter(NamedTuple):
    """A value in a row."""

    value: float
    row: int
    letter: str
    color: str  # a name in COLORS


def draw_letters(
    letters: Sequence[Letter],
    rows: Sequence[tuple[str, str]],
    axis: Axis,
    *,
    key: str,
    title: str,
    across: str,
    description: str,
) -> list[str]:
    """Draw the letters in both widths; rows, from below, are names, which may be shortened, and what follows them."""
    data = {
        "x": [axis(letter.value) for letter in letters],
        "y": [letter.row for letter in letters],
        "letter": [letter.letter for letter in letters],
        "color": [COLORS[letter.color] for letter in letters],
    }
    pictures = []
    for width, pixels in WIDTHS.items():
        names = shorten_names([name for name, _ in rows], 34 if width == "wide" else 14)
        labels = [plain(f"{name} {more}") for name, (_, more) in zip(names, rows, strict=True)]
        plot = lp.ggplot() + lp.geom_text(
            lp.aes("x", "y", label="letter", color="color"), data=data, size=TEXT_SIZE, fontface="bold"
        )
        plot += lp.scale_identity(["color"]) + axis.scale(lp.scale_x_continuous, pixels // 120)
        plot += lp.scale_y_continuous(breaks=list(range(len(rows))), labels=labels, expand=[0, 0.6])
        plot += lp.labs(x=across, y="") + page_theme()
        pictures.append(render(plot, pixels, 60 + 18 * len(rows), f"{key}-{width}", title, description))
    return pictures
