"""TSV reader: the CSV reader with a tab."""

from tfopt.components.prepare_examples.parameters import Settings
from tfopt.components.prepare_examples.readers import csv
from tfopt.components.prepare_examples.readers.base import Source

read = csv.read


def inspect(root: str, files: dict[str, int], settings: Settings) -> Source:
    """Determine the columns and the label as of a CSV."""
    return csv.inspect(root, files, settings, "tsv")
