"""CSV and TSV reader: with or without header, quoted cells with separators and newlines, plain or gzipped.

pyarrow's CSV reader is not used: it accepts a quote that is never closed and text after a closing quote, and reports
rows without their lines.
"""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from tfopt.components.prepare_examples.cells import is_number
from tfopt.components.prepare_examples.files import open_for_reading, read_lines
from tfopt.components.prepare_examples.parameters import Settings
from tfopt.components.prepare_examples.readers.base import Row, Source, check_label, check_names, check_size
from tfopt.errors import ComponentError

DELIMITERS = {"csv": ",", "tsv": "\t"}
SEPARATE = {"csv": "separate the columns with commas", "tsv": "separate the columns with tabs"}


def inspect(source: Source, settings: Settings) -> Source:
    """Determine the columns and the label from the first row of the first file that has one."""
    root, files, format = source.root, source.files, source.format
    heads = ((file, head) for file in files if (head := list(islice(_lines(file, format), 2))))
    file, head = next(heads, (root, []))
    if not head:
        raise ComponentError(f"{root}: empty", f"a {format.upper()} with rows", "give one with content")
    line, cells, problem = head[0]
    if problem:
        received = f"{file}: line {line}: {problem}"
        raise ComponentError(received, f"a {format.upper()} in UTF-8", "fix that line, or the file's encoding")
    first = [cell.strip() for cell in cells]
    header = _has_header(first, head[-1][1], settings, file)
    if header and len(head) == 1 and all(len(more) == 1 for _, more in heads):
        fix = 'give one with content, or pass header="no" if that line is data'
        raise ComponentError(f"{file}: a header and no rows", f"a {format.upper()} with rows", fix)
    columns = first if header else [f"c{index}" for index in range(len(first))]
    check_names(columns, file, 'rename them, or pass header="no" if the file has no header')
    label = settings.label
    if header:
        check_label(columns, label, file, _separator_fix(columns, format))
    else:
        columns[-1 if settings.label_at == "last" else 0] = label
    check_size(columns, columns, settings, file, SEPARATE[format])
    return replace(source, columns=tuple(columns), header=header)


def read(file: str, source: Source) -> Iterator[Row]:
    """Yield the rows, each with its first line; raise ComponentError if the file is damaged or has another header."""
    name, expected, header = source.name(file), list(source.columns), source.header
    for line, cells, problem in _lines(file, source.format):
        if header:
            header = False
            if [cell.strip() for cell in cells] != expected:
                received = f"{file}: the header {','.join(cells)[:200]}"
                fix = "give the files the same columns in the same order"
                raise ComponentError(received, f"the first file's: {','.join(expected)[:200]}", fix)
            continue
        if not problem and len(cells) != len(expected):
            problem = f"{len(cells)} columns instead of {len(expected)}"
        yield Row(name, line, b"" if problem else json.dumps(cells).encode(), problem)


def _lines(file: str, format: str) -> Iterator[tuple[int, list[str], str]]:
    """Yield each row's first line, its cells, and its problem or an empty text; skip empty lines."""
    with open_for_reading(file) as stream, io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="") as text:
        rows = csv.reader(read_lines(text, file), delimiter=DELIMITERS[format], strict=True)
        while True:
            line = rows.line_num + 1
            try:
                cells = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                if "unexpected end" in str(error) or "limit" in str(error):
                    received = f"{file}: line {line}: a quote is opened and never closed"
                    if "limit" in str(error):
                        received += f", or a cell has more than {csv.field_size_limit()} characters"
                    fix = 'close the quote; a quote inside a quoted cell is written twice ("")'
                    raise ComponentError(received, f"a complete {format.upper()}", fix) from error
                yield line, [], str(error)
                continue
            if cells:
                yield line, cells, "" if _is_text(cells) else "not UTF-8"


def _is_text(cells: list[str]) -> bool:
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:  # undecodable bytes have become surrogates
        return False
    return True


def _separator_fix(columns: list[str], format: str) -> str | None:
    other = next((name for name, delimiter in DELIMITERS.items() if name != format and delimiter in columns[0]), None)
    if len(columns) > 1 or not (other or ";" in columns[0]):
        return None
    return f"pass format={other!r}" if other else SEPARATE[format]


def _has_header(first: list[str], second: list[str], settings: Settings, file: str) -> bool:
    if settings.header != "auto":
        return settings.header == "yes"
    if settings.label in first or not any(map(is_number, first)):
        return True
    if any(not is_number(above) and is_number(below) for above, below in zip(first, second, strict=False)):
        raise ComponentError(
            f"{file}: words where the second line has numbers, and no {settings.label!r}: {','.join(first)[:100]}",
            "a header with the label, or none",
            'name the label as the header does, or pass header="no" if that line is data',
        )
    return False
