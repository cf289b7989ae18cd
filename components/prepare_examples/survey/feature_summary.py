"""Statistics of features, mergeable in any order, so that every Beam runner gives the same result."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tfopt.data import tf_example
from tfopt.reports.examples_manifest import FeatureStatistics

LONGEST_WORD = 100
MOST_WORDS = 10_000
TOP = 10


@dataclass
class FeatureSummary:
    """Count, range, mean and standard deviation of a numeric feature, or the most frequent words of a text feature.

    Attributes:
        examples: Number of examples that have the feature.
        sizes: The distinct numbers of values in an example.
        count: Number of values.
        squares: Sum of the squared deviations from the mean.
        words: Count of each word.
        all_words: False if words are missing because there are too many or they are too long.
    """

    dtype: str
    examples: int = 0
    sizes: set[int] = field(default_factory=set)
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float | int | None = None
    high: float | int | None = None
    words: Counter[bytes] = field(default_factory=Counter)
    all_words: bool = True

    def add(self, batch: Sequence[tf_example.Values]) -> None:
        """Add the values of some examples."""
        self.merge(_summarize(self.dtype, batch))

    def merge(self, other: "FeatureSummary") -> None:
        """Add the examples of another summary (Chan's update: a plain sum of squares would cancel)."""
        self.examples += other.examples
        self.sizes |= other.sizes
        if other.count:
            total, gap = self.count + other.count, other.mean - self.mean
            self.squares += other.squares + gap * gap * self.count * other.count / total
            self.mean += gap * other.count / total
            self.count = total
        self.low = min((value for value in (self.low, other.low) if value is not None), default=None)
        self.high = max((value for value in (self.high, other.high) if value is not None), default=None)
        self.words.update(other.words)
        self.all_words &= other.all_words
        if len(self.words) > MOST_WORDS:
            self.all_words = False
            self.words = Counter(dict(sorted(self.words.items(), key=_by_frequency)[:MOST_WORDS]))

    def statistics(self, shape: tuple[int, ...] | None, examples: int) -> FeatureStatistics:
        """Return the entry of ``examples.json``; ``examples`` is the number of all examples."""
        size = next(iter(self.sizes)) if len(self.sizes) == 1 else None
        entry = FeatureStatistics(self.dtype, list(shape) if shape else [size], missing=examples - self.examples)
        if self.dtype == "string":
            top = sorted(self.words.items(), key=_by_frequency)[:TOP]
            return replace(
                entry,
                distinct=len(self.words),
                distinct_is_exact=self.all_words,
                top=[[word.decode(errors="replace"), count] for word, count in top],
            )
        if not self.count:
            return entry
        deviation = float(np.sqrt(self.squares / self.count))
        return replace(entry, min=self.low, max=self.high, mean=_short(self.mean), std=_short(deviation))


def _summarize(dtype: str, batch: Sequence[tf_example.Values]) -> FeatureSummary:
    summary = FeatureSummary(dtype, len(batch), {len(values) for values in batch})
    if dtype == "string":
        words = [word for values in batch for word in values]
        summary.words = Counter(word for word in words if len(word) <= LONGEST_WORD)
        summary.all_words = all(len(word) <= LONGEST_WORD for word in words)
        return summary
    if not batch:
        return summary
    if isinstance(batch[0], list):  # from a table, mostly one value each
        numbers = np.array([value for values in batch for value in values], dtype)
    else:
        numbers = np.concatenate([np.asarray(values, dtype) for values in batch])
    exact = numbers.astype(np.float64)
    summary.count, summary.mean = len(exact), float(exact.mean())
    summary.squares = float(np.square(exact - summary.mean).sum())
    low, high = numbers.min().item(), numbers.max().item()
    summary.low, summary.high = (low, high) if dtype == "int64" else (_short(low), _short(high))
    return summary


def _by_frequency(item: tuple[bytes, int]) -> tuple[int, bytes]:
    return -item[1], item[0]


def _short(value: float) -> float:
    return float(f"{value:.9g}")  # the precision of a float32
