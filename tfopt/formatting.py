"""How a number is said: the same in a reason, in the terminal and in the report. Plain ASCII."""

SHARES = ("accuracy", "agreement")  # names that end so are shares, shown in percent and compared in points
UNITS = {"latency": "ms", "latency_p90": "ms", "latency_p99": "ms", "load": "s", "throughput": "/s"}
BYTES = ("size", "size_gzipped", "memory")
NAMES = {"latency_p90": "latency (p90)", "latency_p99": "latency (p99)", "size_gzipped": "gzipped size"}


def is_share(metric: str) -> bool:
    """Whether a metric goes from 0 to 1 and people say it in percent."""
    return metric.endswith(SHARES)


def title(metric: str) -> str:
    """A metric's name as prose.

    >>> title("top_5_accuracy"), title("size_gzipped")
    ('top 5 accuracy', 'gzipped size')
    """
    return NAMES.get(metric, metric.replace("_", " "))


def amount(metric: str, value: float) -> str:
    """A metric's value with its unit.

    >>> amount("accuracy", 0.978), amount("latency", 0.04127), amount("size", 45_100), amount("log_loss", 0.07654321)
    ('97.80%', '0.0413 ms', '45.1 kB', '0.07654')
    """
    if is_share(metric):
        return f"{100 * value:.2f}%"
    if metric in BYTES:
        return data_size(value)
    if metric == "throughput":
        return f"{value:,.0f}/s" if abs(value) >= 100 else f"{value:.3g}/s"
    unit = UNITS.get(metric)
    return f"{_digits(value, 3)} {unit}" if unit else _bare(_digits(value, 4))


def change(metric: str, value: float) -> str:
    """A difference with its sign; points for shares.

    >>> change("accuracy", -0.0021), change("log_loss", 0.004), change("size", -1200)
    ('-0.21 points', '+0.004', '-1.20 kB')
    """
    return _sign(value) + distance(metric, abs(value))


def distance(metric: str, value: float) -> str:
    """A difference without its sign.

    >>> distance("accuracy", 0.01), distance("latency", 1.5), distance("log_loss", 0.0012345)
    ('1.00 points', '1.50 ms', '0.00123')
    """
    if is_share(metric):
        return f"{100 * value:.2f} points"
    return amount(metric, value) if metric in UNITS or metric in BYTES else _bare(_digits(value, 3))


def change_between(metric: str, low: float | None, high: float | None) -> str:
    """The interval of a difference, unit left to the value beside it; empty when none was measured.

    >>> change_between("accuracy", -0.0061, 0.002), change_between("accuracy", None, None)
    ('-0.61 to +0.20', '')
    """
    if low is None or high is None:
        return ""
    return " to ".join(change(metric, end).removesuffix(" points") for end in (low, high))


def times(value: float) -> str:
    """A ratio.

    >>> times(3.1), times(12.345)
    ('3.10x', '12.3x')
    """
    return f"{value:.2f}x" if value < 10 else f"{value:.1f}x" if value < 100 else f"{value:.0f}x"


def count(value: float) -> str:
    """A large number with the prefix that people use.

    >>> count(3_500_000), count(600_700_000), count(950)
    ('3.50 M', '601 M', '950')
    """
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * scale:
            return f"{value / scale:#.3g} {unit}".replace(". ", " ")
    return f"{value:,.0f}"


def data_size(count: float) -> str:
    """Bytes in decimal units, as disks and networks are sold.

    >>> data_size(980), data_size(45_100), data_size(1_234_567)
    ('980 B', '45.1 kB', '1.23 MB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= 0.9995 * scale:
            return f"{_digits(count / scale, 3)} {unit}"
    return f"{count:.0f} B"


def smaller(size: float, than: float) -> str:
    """How a size compares with the parent's.

    >>> smaller(25, 100), smaller(120, 100), smaller(100, 100)
    ('75% smaller', '20% larger', 'the same size')
    """
    ratio = size / than - 1 if than else 0.0
    if abs(ratio) < 0.005:
        return "the same size"
    return f"{100 * abs(ratio):.0f}% {'smaller' if ratio < 0 else 'larger'}"


def _sign(value: float) -> str:
    return "-" if value < 0 else "+" if value else ""


def _digits(value: float, count: int) -> str:
    """At most ``count`` significant digits, without an exponent where people read none."""
    if value and not 1e-5 <= abs(value) < 1e6:
        mantissa, power = f"{value:.{count - 2}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    if abs(value) >= 10 ** (count - 1):
        return f"{value:,.0f}"
    return f"{value:#.{count}g}".rstrip(".")


def _bare(text: str) -> str:
    """Without zeros at the end that say nothing where there is no unit to line up."""
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
