"""YAML files as entries that know their file and line: overlay of several files, and variables of the environment.

Values are read as texts, whatever YAML makes of them: ``no`` is not a boolean here, and ``1e-3`` is not a text. The
declaration of each option or parameter decides how its text is parsed, as on the command line.
"""

import contextlib
import errno
import os
import re
import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import yaml

from tfopt.artifacts.base import check_regular
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

_VARIABLE = re.compile(r"\$\{([^}]*)(\}?)")
_NULL = "tag:yaml.org,2002:null"
_DESCRIPTOR = re.compile(r"-|/dev/stdin|(?:/dev|/proc/self)/fd/(\d{1,6})")  # of the command: ``-f <(command)``
_PIPE = Path("pipe")  # how errors name it
_MOST_BYTES = 1 << 20  # of a pipe
_PIPE_S = 60.0  # within which a pipe must end
_MOST = 100_000  # values, those of aliases counted wherever they stand: a few lines could be 10^12


class LineError(ComponentError):
    """An error that names a file and a line."""


@dataclass(frozen=True)
class Entry:
    """A value in a file."""

    # a text with variables, a list, or a mapping; None for ``null``, which stands for an absent key
    content: "str | list[Entry] | dict[str, Entry] | None"
    file: Path
    line: int  # the line of its key, or of an item of a list, from 1
    name: str  # its keys from the outermost one on, with dots between them; empty for the file itself
    size: int = 1  # number of values in it

    def error(self, received: str, expected: str, fix: str) -> ComponentError:
        """Return an error that begins with the file and the line."""
        return LineError(f"{self.file}, line {self.line}: {received}", expected, fix)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Name the file and the line in the errors that are raised inside."""
        try:
            yield
        except LineError:
            raise  # it names the line of an entry inside of this one
        except ComponentError as error:
            raise self.error(error.received, error.expected, error.fix) from error

    def text(self) -> str:
        """Return a text with the values of its variables; raise ComponentError for an unset one, or for no text."""
        return _VARIABLE.sub(self._value, self.literal())

    def literal(self) -> str:
        """Return a text as it is in the file; raise ComponentError for something else."""
        if not isinstance(self.content, str):
            raise self.error(f"{self.name} is a {self._kind}", "one value", f"write {self.name}: VALUE")
        return self.content

    def texts(self) -> list[str]:
        """Return the texts of a list, or one text as a list."""
        items = self.content if isinstance(self.content, list) else [self]
        return [item.text() for item in items]

    def path(self) -> str:
        """Return a path; a relative one is relative to the folder of the file. Addresses remain unchanged."""
        text = self.text()
        if "://" in text or text.startswith("~"):
            return text
        return os.path.normpath(self.file.absolute().parent / text)

    def mapping(self, allowed: Sequence[str] | None = None) -> dict[str, "Entry"]:
        """Return the entries of a mapping that are not null; any key is allowed if `allowed` is None.

        Raises:
            ComponentError: If this is no mapping, or it has an unknown key.
        """
        if self.content is None:
            return {}
        if not isinstance(self.content, dict):
            name = self.name or "the file"
            raise self.error(f"{name} is a {self._kind}", "a mapping: lines of KEY: VALUE", "write KEY: VALUE")
        for key, entry in self.content.items():
            if allowed is not None and key not in allowed:
                raise entry.error(entry.name, f"a key of {self.name or 'a run file'}", nearest(key, allowed))
        return {key: entry for key, entry in self.content.items() if entry.content is not None}

    @property
    def _kind(self) -> str:
        kinds = {"text": str, "list": list, "mapping": dict}
        return next((name for name, kind in kinds.items() if isinstance(self.content, kind)), "null")

    def _value(self, match: re.Match[str]) -> str:
        name, end = match.groups()
        if not end or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise self.error(match[0], "${NAME}, with the name of a variable and nothing else", "write ${NAME}")
        if name not in os.environ:
            fix = f"run it as {name}=… tfopt …, or write the value in the file"
            raise self.error(f"${{{name}}} is not set", f"a variable {name} in the environment", fix)
        return os.environ[name]


def read_entries(files: Sequence[Path]) -> Entry:
    """Read files; those after the first override it key by key, at every depth. Lists are replaced as a whole.

    Raises:
        ComponentError: If a file cannot be read as one YAML document of mappings, lists and texts.
    """
    try:
        return reduce(_overlay, [_read(file) for file in files])
    except RecursionError as error:  # aliases of aliases are deeper than a file
        received = f"{', '.join(map(str, files))}: aliases within each other, too deep"
        raise ComponentError(received, "values that end", "write the values without aliases") from error


def _overlay(entry: Entry, later: Entry) -> Entry:
    if not isinstance(entry.content, dict) or not isinstance(later.content, dict):
        return later
    earlier = entry.content
    both = {name: _overlay(earlier[name], item) for name, item in later.content.items() if name in earlier}
    return replace(later, content={**earlier, **later.content, **both})


def _read(file: Path) -> Entry:
    try:
        if descriptor := _DESCRIPTOR.fullmatch(str(file)):
            text, file = _read_pipe(int(descriptor[1] or 0)), _PIPE
        else:
            if not file.is_dir():
                check_regular(file, "a run file")
            text = file.read_bytes()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EBADF):
            raise
        raise ComponentError(f"-f {file}: no such file", "a run file", "check the path") from error
    return parse_entries(text, file)


def parse_entries(text: bytes, file: Path) -> Entry:
    """Parse the content of a file; errors as `read_entries`."""
    try:
        node = yaml.compose(text.decode(), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise ComponentError(f"{file}: {error.reason} at byte {error.start}", "text in UTF-8", "convert it") from error
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        fix = "correct this line; a value with {, }, #, or a colon and a space is written in quotes"
        raise ComponentError(f"{file}{line}: {problem}", "one YAML document", fix) from error
    if node is None:
        return Entry({}, file, 1, "")
    entry = _convert(node, file, "", {})
    if not isinstance(entry.content, dict):
        entry.mapping()  # raises
    return entry


def _read_pipe(descriptor: int) -> bytes:
    """Return the content of an open file or pipe."""
    content, end, ready = b"", time.monotonic() + _PIPE_S, select.poll()
    ready.register(descriptor, select.POLLIN)
    while len(content) <= _MOST_BYTES and ready.poll(max(0.0, end - time.monotonic()) * 1000):
        part = os.read(descriptor, _MOST_BYTES)
        if not part:
            return content
        content += part
    received = f"-f with a pipe that does not end within {_PIPE_S:.0f} s and {_MOST_BYTES} bytes"
    raise ComponentError(received, "a run file", "write it to a file, and pass that")


def _convert(node: yaml.Node, file: Path, name: str, done: dict[int, Entry | None]) -> Entry:
    """Convert a node; each one only once, because an alias (``*name``) leads to a node that was there before."""
    line = node.start_mark.line + 1
    if id(node) in done:
        entry = done[id(node)]
        if entry is None:
            received = f"{file}, line {line}: an alias inside of its own anchor"
            raise ComponentError(received, "values that end", "remove the alias")
        return entry
    done[id(node)] = None
    content: str | list[Entry] | dict[str, Entry] | None
    if isinstance(node, yaml.MappingNode):
        content = {}
        for key, value in node.value:
            text = key.value if isinstance(key, yaml.ScalarNode) else "?"
            if not isinstance(key, yaml.ScalarNode) or text in content:
                what = f"the key {text!r} twice" if text in content else "a key that is a list or a mapping"
                place = f"{file}, line {key.start_mark.line + 1}"
                raise ComponentError(f"{place}: {what}", "texts as keys, each once", "remove or rename one")
            path = f"{name}.{text}".lstrip(".")
            content[text] = replace(_convert(value, file, path, done), line=key.start_mark.line + 1, name=path)
    elif isinstance(node, yaml.SequenceNode):
        content = [_convert(item, file, name, done) for item in node.value]
    else:
        content = None if node.tag == _NULL else node.value
    inner = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    done[id(node)] = entry = Entry(content, file, line, name, 1 + sum(item.size for item in inner))
    if entry.size > _MOST:
        received = f"{file}, line {line}: {entry.size} values, as aliases repeat them"
        raise ComponentError(received, f"at most {_MOST}", "write the values that the run needs, without aliases")
    return entry
