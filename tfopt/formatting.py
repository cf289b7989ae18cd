"""Format metrics and numbers as text, the same for reasons, terminal and reports, and make text of inputs harmless."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tfopt.metric_table import PERCENT, find_metric

DASH = "\N{EN DASH}"  # instead of what was not measured
_SLICE = re.compile(r"([^\[]+)\[([^=\]]+)=(.*)\]")  # a metric over the records with one value of a feature

# Characters that move the cursor, color or overwrite what a terminal shows, or change the order of other characters.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Replace characters that a terminal or browser obeys instead of showing them by their escape sequences.

    Names from inputs (of layers, features, classes, files) may contain them. Newlines and tabs remain.

    >>> visible("red \x1b[31m, reversed \u202e, ä")
    'red \\x1b[31m, reversed \\u202e, ä'
    """
    return _INVISIBLE.sub(lambda match: ascii(match[0])[1:-1], text)


def indented(text: str) -> str:
    r"""Make a text visible and indent all of its lines but the first, so that a newline in a name forges no message.

    >>> indented("no class 'a\nexpected: b'")
    "no class 'a\n    expected: b'"
    """
    return visible(text).replace("\n", "\n    ")


def shorten(text: str, most: int) -> str:
    """Shorten a text to a number of letters, without its middle.

    >>> shorten("tflite int8", 26), shorten("pruned 80% + clustered 32, tflite int8", 23)
    ('tflite int8', 'pruned 80%..tflite int8')
    """
    head = most // 2 - 1
    return text if len(text) <= most else f"{text[:head]}..{text[head + 2 - most :]}"


def shorten_names(names: Sequence[str], most: int) -> list[str]:
    """Shorten names as `shorten` does, but to more letters where two of them would become the same.

    >>> shorten_names(["trained", "pruned, tflite int8", "pruned and clustered, tflite int8"], 19)
    ['trained', 'pruned, tflite int8', 'pruned a..lite int8']
    """
    for letters in range(most, max(map(len, names), default=most)):
        short = [shorten(name, letters) for name in names]
        if len(set(short)) == len(set(names)):
            return short
    return list(names)


def changes(kind: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe each name with another value; values are compared as JSON, where tuples are lists.

    >>> changes("parameter ", {"epochs": 9, "split": ["a"]}, {"epochs": 8, "split": ("a",)})
    ['parameter epochs changed: 9 -> 8']
    """
    pairs = {name: (_json(before.get(name)), _json(now.get(name))) for name in sorted({*before, *now})}
    return [f"{kind}{name} changed: {old} -> {new}" for name, (old, new) in pairs.items() if old != new]


def _json(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def is_share(metric: str) -> bool:
    """Return True for a metric from 0 to 1 that is shown in percent."""
    return whole(metric).endswith(PERCENT)


def whole(metric: str) -> str:
    """Return the name of a metric without its slice.

    >>> whole("accuracy[city=Oslo]"), whole("log_loss")
    ('accuracy', 'log_loss')
    """
    match = _SLICE.fullmatch(metric)
    return match[1] if match else metric


def title(metric: str) -> str:
    """Return the name of a metric in prose.

    >>> title("top_5_accuracy"), title("size_gzipped"), title("log_loss[city=Oslo]")
    ('top 5 accuracy', 'gzipped size', 'log loss where city is Oslo')
    """
    match = _SLICE.fullmatch(metric)
    where = f" where {match[2]} is {match[3]}" if match else ""
    metric = whole(metric)
    row = find_metric(metric)
    return (row.title if row and row.title else metric.replace("_", " ")) + where


def scale(metric: str, label: str | None) -> str:
    """Return in words what the values of a metric without a unit count; empty if it has one.

    >>> scale("mean_absolute_error", "price"), scale("accuracy", "price")
    ('in units of price', '')
    """
    row = find_metric(whole(metric))
    return row.scale.format(label=label or "the label") if row else ""


def amount(metric: str, value: float | None, low: float | None = None, high: float | None = None) -> str:
    """Format the value of a metric with its unit, rounded to its interval; a dash if it was not measured.

    >>> amount("accuracy", 0.978), amount("latency", 0.04127), amount("size", 45_100), amount("log_loss", 0.07654321)
    ('97.80%', '0.0413 ms', '45.1 kB', '0.07654')
    >>> amount("accuracy", 0.978, 0.9, 0.99), amount("log_loss", 0.07654321, 0.06, 0.09), amount("mae", 4923, 3e3, 6e3)
    ('98%', '0.077', '4,900')
    """
    if value is None:
        return DASH
    most = _decimals(low, high)
    if is_share(metric):
        return f"{100 * value:.{min(2, max(0, most - 2))}f}%"
    unit = _unit(metric)
    if unit == "bytes":
        return data_size(value)
    if unit == "/s":
        return f"{value:,.0f}/s" if abs(value) >= 100 else f"{value:.3g}/s"
    return f"{_digits(value, 3)} {unit}" if unit else _cut(_bare(_digits(value, 4)), value, most)


def _decimals(low: float | None, high: float | None) -> int:
    """Return to how many decimals a value with this interval is rounded; negative for tens, hundreds and so on.

    Its last digit is the first one of half the interval's width, or the second one if these two are below 36 (the rule
    of the Particle Data Group).
    """
    half = (high - low) / 2 if low is not None and high is not None else 0.0
    if not 0 < half < math.inf:
        return 99
    power = math.floor(math.log10(half))
    return (1 if half / 10**power < 3.55 else 0) - power


def _cut(text: str, value: float, most: int) -> str:
    """Return a formatted value with fewer decimals if it has more than ``most``."""
    decimals = len(text.partition(".")[2])
    return text if "e" in text or decimals <= most else f"{round(value, most):,.{max(0, most)}f}"


def _unit(metric: str) -> str:
    row = find_metric(metric)
    return row.unit if row else ""


def change(metric: str, value: float, low: float | None = None, high: float | None = None) -> str:
    """Format a difference with its sign, rounded to its interval; shares in points.

    >>> change("accuracy", -0.0021), change("log_loss", 0.004), change("size", -1200)
    ('-0.21 points', '+0.004', '-1.20 kB')
    >>> change("accuracy", -0.004, -0.0085, 0.0005), change("accuracy", -0.0002, -0.04, 0.04)
    ('-0.4 points', '0 points')
    """
    text = distance(metric, abs(value), low, high)
    is_zero = not re.search("[1-9]", text)
    return text if is_zero else f"{'-' if value < 0 else '+'}{text}"


def distance(metric: str, value: float, low: float | None = None, high: float | None = None) -> str:
    """Format a difference without its sign, rounded to its interval.

    >>> distance("accuracy", 0.01), distance("latency", 1.5), distance("log_loss", 0.0012345)
    ('1.00 points', '1.50 ms', '0.00123')
    """
    most = _decimals(low, high)
    if is_share(metric):
        return f"{100 * value:.{min(2, max(0, most - 2))}f} points"
    return amount(metric, value) if _unit(metric) else _cut(_bare(_digits(value, 3)), value, most)


def change_interval(metric: str, low: float | None, high: float | None) -> str:
    """Format the interval of a difference without its unit; empty if none was measured.

    >>> change_interval("accuracy", -0.0061, 0.002), change_interval("accuracy", None, None)
    ('-0.61 to +0.20', '')
    """
    if low is None or high is None:
        return ""
    return " to ".join(change(metric, end).removesuffix(" points") for end in (low, high))


def ratio(value: float, low: float | None = None, high: float | None = None) -> str:
    """Format a ratio, rounded to its interval.

    >>> ratio(3.1), ratio(12.345), ratio(12.345, 8.1, 19.2)
    ('3.10x', '12.3x', '12x')
    """
    text = f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
    return f"{_cut(text, value, _decimals(low, high))}x"


def counted(number: int, noun: str) -> str:
    """Return a number and a noun.

    >>> counted(1, "node"), counted(3, "node")
    ('1 node', '3 nodes')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def count(value: float) -> str:
    """Format a large number with a prefix.

    >>> count(3_500_000), count(600_700_000), count(950)
    ('3.50 M', '601 M', '950')
    """
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * scale:
            return f"{value / scale:#.3g} {unit}".replace(". ", " ")
    return f"{value:,.0f}"


def data_size(count: float) -> str:
    """Format a number of bytes in decimal units.

    >>> data_size(980), data_size(45_100), data_size(1_234_567)
    ('980 B', '45.1 kB', '1.23 MB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= 0.9995 * scale:
            return f"{_digits(count / scale, 3)} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """Format a time.

    >>> duration(0.04), duration(21.36), duration(80), duration(7320)
    ('0.0 s', '21.4 s', '1 min 20 s', '2 h 2 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def relative_size(size: float, than: float) -> str:
    """Format a size relative to that of the parent.

    >>> relative_size(25, 100), relative_size(120, 100), relative_size(100, 100)
    ('75% smaller', '20% larger', 'the same size')
    """
    growth = size / than - 1 if than else 0.0
    if abs(growth) < 0.005:
        return "the same size"
    return f"{100 * abs(growth):.0f}% {'smaller' if growth < 0 else 'larger'}"


def _digits(value: float, count: int) -> str:
    """Format with at most ``count`` significant digits, with an exponent only for very small and large values."""
    if value and not 1e-5 <= abs(value) < 1e6:
        mantissa, power = f"{value:.{count - 2}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    if abs(value) >= 10 ** (count - 1):
        return f"{value:,.0f}"
    return f"{value:#.{count}g}".rstrip(".")


def _bare(text: str) -> str:
    """Remove trailing zeros of a number without a unit."""
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
