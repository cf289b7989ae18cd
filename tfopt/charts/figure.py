"""Render lets-plot figures as accessible SVG in the colors of the page."""

import io
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any
from xml.etree import ElementTree as ET

from lets_plot import element_blank, element_line, element_text, ggsize, theme

from tfopt.error_messages import first_line
from tfopt.formatting import visible

SVG = "{http://www.w3.org/2000/svg}"
TEXTS = [SVG + name for name in ("text", "tspan", "title", "desc")]
# CSS variables of the pages. Figures are drawn in placeholder colors, which become `var(--NAME)`: light and dark mode.
VARIABLES = ("ink", "soft", "line", "card", "accent", "baseline", "other", "goal", "bad", "band")
COLORS = {name: f"#0101{number:02x}" for number, name in enumerate(VARIABLES)}
# In pixels, for a monitor and for a phone, where text in a scaled figure would be too small; a page shows one of them.
WIDTHS = {"wide": 760, "narrow": 356}
TEXT_SIZE = 6.0  # of text layers in lets-plot's unit: a font of 12 pixels
# lets-plot reads "<a href=" as a link and a backslash as LaTeX, which names of models are not. Both are replaced by
# other characters while it draws.
MARKUP = {"<": "\ue000", "\\": "\ue001"}


def plain(text: str) -> str:
    """Return text that lets-plot draws as it is."""
    return visible(text).translate({ord(old): new for old, new in MARKUP.items()})


def page_theme(**changes: Any) -> Any:
    """Return the theme of all figures: texts and grid in the colors of the page, no background, no legend."""
    parts = {
        "text": element_text(size=12, color=COLORS["soft"]),
        "axis_title": element_text(size=12, face="bold", color=COLORS["soft"]),
        "panel_grid_major": element_line(color=COLORS["line"], size=0.45),
        "panel_grid_minor": element_blank(),
        "axis_line": element_blank(),
        "axis_ticks": element_blank(),
        "plot_background": element_blank(),
        "panel_background": element_blank(),
        "legend_position": "none",
        "plot_margin": [8, 8, 4, 4],
    }
    return theme(**parts | changes)


def draw(plot: Any, width: int, height: int) -> ET.Element:
    """Return a figure of a size in pixels as SVG, as lets-plot draws it."""
    file = io.BytesIO()
    (plot + ggsize(width, height)).to_svg(file)
    return ET.fromstring(file.getvalue())


def draw_safely(chart: str, draw_all: Callable[[], Iterable[str]]) -> str:
    """Return charts as markup, or why a function cannot draw them: no chart prevents a report or a decision."""
    try:
        return "".join(draw_all())
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        logging.getLogger(__name__).warning("the report is written without %s: %s", chart, reason)
        return f'<p class="soft">Without {escape(chart)}, which could not be drawn: {escape(visible(reason))}</p>'


def render(
    plot: Any, width: int, height: int, key: str, title: str, description: str, tooltips: Sequence[str] = ()
) -> str:
    """Draw a figure and return SVG markup for an HTML page; `to_markup` has the arguments."""
    return to_markup(draw(plot, width, height), key, title, description, tooltips)


def to_markup(drawn: ET.Element, key: str, title: str, description: str, tooltips: Sequence[str] = ()) -> str:
    """Return SVG markup for an HTML page.

    Args:
        drawn: A drawn figure whose colors are in `COLORS`.
        key: Prefix of the element ids, unique on the page; its parts, between hyphens, are classes of the SVG.
        title: Title for screen readers.
        description: Full description for screen readers.
        tooltips: Tooltips of the circles, in the order in which they are drawn.
    """
    ET.register_namespace("", SVG[1:-1])
    names = {"role": "img", "aria-labelledby": f"{key}-title {key}-desc", "class": f"picture {key.replace('-', ' ')}"}
    svg = ET.Element(f"{SVG}svg", {"viewBox": f"0 0 {drawn.get('width')} {drawn.get('height')}", **names})
    for name, text in (("title", title), ("desc", description)):
        ET.SubElement(svg, f"{SVG}{name}", {"id": f"{key}-{name}"}).text = visible(text)
    svg.extend(child for child in drawn if child.tag != f"{SVG}style")  # fonts and colors are those of the page
    for circle, text in zip(svg.iter(f"{SVG}circle"), tooltips, strict=False):
        ET.SubElement(circle, f"{SVG}title").text = visible(text)
    _adapt(svg, key)
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", ET.tostring(svg, encoding="unicode"), count=2)  # HTML needs none


def _adapt(svg: ET.Element, key: str) -> None:
    """Replace placeholders of colors and characters, and make ids depend on the key only."""
    ids = [element.attrib["id"] for element in svg.iter() if not element.get("id", key).startswith(key)]
    replaced = {name: f"{key}-{number}" for number, name in enumerate(ids)}
    for name, color in COLORS.items():
        rgb = f"rgb({','.join(map(str, bytes.fromhex(color[1:])))})"
        replaced |= dict.fromkeys((color, rgb), f"var(--{name})")
    pattern = re.compile("|".join(map(re.escape, replaced)))
    for element in svg.iter():
        for name in ("clip-bounds-jfx", "buffered-rendering", "text-rendering"):
            element.attrib.pop(name, None)
        for name, value in element.attrib.items():
            short = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), value)
            element.set(name, pattern.sub(lambda match: replaced[match[0]], short))
        if "font-size" in (style := element.get("style", "")):
            if "bold" in style:
                element.set("font-weight", "bold")
            element.set("style", re.sub(r".*(font-size:[^;]*).*", r"\1", style))  # the rest is in the style sheet
        element.tail = None
        text = element.text and element.text.translate({ord(new): old for old, new in MARKUP.items()})
        element.text = text if element.tag in TEXTS and len(element) == 0 else None
