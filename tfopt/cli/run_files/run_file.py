"""A run file: pipeline, values and options of ``tfopt run``, ``plan`` and the commands for Kubeflow in YAML (``-f``).

Its keys are those options. The file supplies their defaults, and a command ignores the options of other commands. So
the command line overrides the file, and each option has one description, one type and one check.
"""

import argparse
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfopt.cli.arguments import parse_assignments
from tfopt.cli.run_files.notify_settings import read_receiver
from tfopt.dag.dag import Dag
from tfopt.declaration.parameters import Parameter
from tfopt.declaration.yaml_entries import Entry, read_entries
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.kfp.images import Images
from tfopt.kfp.pod_options import KEYS, LISTS, RUN_KEYS, Options, named_by
from tfopt.notifications.receiver import Receiver
from tfopt.storage import remote_files

# The option of each key, by the name that argparse stores it under. `values`, `images` and `pods` are mappings instead.
OPTIONS = {
    "": (
        "pipeline",
        "root",
        "engine",
        "jobs",
        "price",
        "skip_unprofitable",
        "gpu_price",
        "beam_pipeline_arg",
        "stage",
        "pipeline_name",
    ),
    "server": ("endpoint", "token_file", "namespace", "experiment"),
    "schedule": ("cron", "name"),
}
TOP_KEYS = (*OPTIONS[""], "values", "images", "pods", "server", "schedule", "notify")
LOCAL_COMMANDS = ("run", "plan", "notify")  # the others are for Kubeflow
DEFAULT_IMAGE = "default"
STEPS = "steps"
POD_FORMS = {form.partition(".")[0]: form for form in KEYS}


class RunFile:
    """The merged files of a command."""

    def __init__(self, files: Sequence[Path] = (), command: str = "run") -> None:
        """Read and check everything that needs no pipeline; without files everything is empty.

        Later files override earlier ones key by key. The options are the command's.

        Raises:
            ComponentError: If a file cannot be read, or has an unknown key, or a value in the wrong form.
        """
        self.entries = read_entries(files).mapping(TOP_KEYS) if files else {}
        self._command = command
        self._options = dict(self._read_options())
        is_used = "notify" in self.entries and command in LOCAL_COMMANDS
        self.receiver: Receiver | None = read_receiver(self.entries["notify"]) if is_used else None
        self._pods = list(self._read_pods())
        for setting in self._pods:
            if "${" not in str(setting.entry.content):  # variables are needed by the commands that use them only
                setting.option()

    def set_defaults(self, parser: argparse.ArgumentParser) -> None:
        """Make the options of the file defaults of the command's parser, which then does not require them.

        Raises:
            ComponentError: If an option does not allow its value, or a variable in it is not set.
        """
        for action in parser._actions:
            if action.dest == "image" and "images" in self.entries:
                action.default = self._images()
            elif action.dest == "kfp_option":
                # The YAML cannot hold the account; the same file is for `submit` and `schedule`, which pass it.
                pods = [pod for pod in self._pods if (pod.key, self._command) != ("service_account", "compile")]
                action.default = [pod.option() for pod in pods]
            elif action.dest in self._options:
                action.default = self._default(action, self._options[action.dest])
                action.required = False
                if not action.option_strings:
                    action.nargs = "?"
        parser.set_defaults(run_file=self)

    def values(
        self,
        dag: Dag,
        assignments: Sequence[str],
        check: Callable[[str, Any], None] = lambda name, value: None,
        names: Collection[str] | None = None,
    ) -> dict[str, object]:
        """Return the checked values of a pipeline: those of ``--set``, and those of the file.

        The values of ``--set`` replace those of the file. `check` raises what the command refuses of the latter. With
        ``names``, the others of the file are not read: their variables need not be set.

        Raises:
            ComponentError: If the pipeline does not have a name, or does not allow a value. For the file's, the error
                names the line.
        """
        assigned = parse_assignments(dag, assignments)
        for setting in self._pods:
            setting.check_step(dag)
        values: dict[str, object] = {}
        entries = self._mapping("values", [*dag.sources, *dag.parameters])
        for name, entry in entries.items():
            if name not in assigned and (names is None or name in names):
                with entry.named():
                    values[name] = self._value(dag, name, entry)
                    check(name, values[name])
        return values | assigned

    @contextlib.contextmanager
    def naming(self, dest: str, value: Any) -> Iterator[None]:
        """Name the line of an option in errors that are raised inside, if its value is that of the file."""
        entry = self._options.get(dest)
        with entry.named() if entry and entry.text() == value else contextlib.nullcontext():
            yield

    def _mapping(self, key: str, allowed: Sequence[str] | None = None) -> dict[str, Entry]:
        return self.entries[key].mapping(allowed) if key in self.entries else {}

    def _read_options(self) -> Iterator[tuple[str, Entry]]:
        """Yield the options of this command by their destination in its parser."""
        for section, keys in OPTIONS.items():
            entries = self._mapping(section, keys) if section else self.entries
            if section != "schedule" or self._command == "schedule":  # `submit --name` is the name of a run
                yield from ((key, entries[key]) for key in keys if key in entries)

    def _default(self, action: argparse.Action, entry: Entry) -> Any:
        if isinstance(action.default, list):
            return entry.texts()
        if action.type is Path:
            return Path(entry.path())
        text, choices = entry.text(), action.choices
        if choices and text not in choices:
            raise entry.error(f"{entry.name}: {text}", f"one of {', '.join(choices)}", nearest(text, choices))
        return entry.path() if action.dest == "pipeline" and text.endswith(".py") else text

    def _images(self) -> list[str]:
        entry = self.entries["images"]
        if isinstance(entry.content, str):
            entry = replace(entry, content={DEFAULT_IMAGE: entry})
        references = []
        for kind, reference in entry.mapping().items():
            text = reference.text()
            references.append(text if kind == DEFAULT_IMAGE else f"{kind}={text}")
            with reference.named():
                Images([references[-1]])
        return references

    def _read_pods(self) -> Iterator["_PodSetting"]:
        entries = self._mapping("pods", [*POD_FORMS, STEPS])
        steps = entries.pop(STEPS).mapping() if STEPS in entries else {}
        yield from _pod_settings(None, entries)
        for step, settings in steps.items():
            yield from _pod_settings(step, settings.mapping([key for key in POD_FORMS if key not in RUN_KEYS]))

    def _value(self, dag: Dag, name: str, entry: Entry) -> Any:
        if name in dag.sources:
            return entry.path()
        parameter = dag.parameters[name]
        if parameter.is_location:
            return self._location(entry)
        if isinstance(entry.content, list):
            return parameter.check([_item(parameter, item) for item in entry.content], dag.name)
        text = _item(parameter, entry)
        return parameter.check([text], dag.name) if parameter.type == list[str] else parameter.parse(text, dag.name)

    def _location(self, entry: Entry) -> str:
        """Return the path or address of a parameter; a step on Kubeflow has no folder of this machine."""
        text = entry.text()
        is_reachable = remote_files.is_remote(text) or remote_files.local_path(text).is_absolute()
        if self._command not in LOCAL_COMMANDS and not is_reachable:
            received = f"{entry.name}: {text}"
            expected = "an address, or the absolute path of a volume, because the steps run on Kubeflow"
            raise ComponentError(received, expected, "write it so in a second file, and pass that with another -f")
        return entry.path()


@dataclass(frozen=True)
class _PodSetting:
    """One option of ``--kfp-option`` in a file, for a step or source, or for all steps (None)."""

    step: str | None
    key: str
    entry: Entry

    def option(self) -> str:
        """Return ``[STEP:]KEY=VALUE``; raise ComponentError for a value that is not allowed, or an unset variable."""
        text = self.entry.text()
        option = f"{self.step}:{self.key}={text}" if self.step else f"{self.key}={text}"
        key = self.key.partition(".")[0]
        try:
            Options([option])
        except ComponentError as error:
            example = KEYS[POD_FORMS[key]][1].partition("=")[2]
            expected = f"a value of this form: {example}"
            received = f"{self.entry.name}: {text}"
            raise self.entry.error(received, expected, "correct the value (docs/kubeflow.md)") from error
        return option

    def check_step(self, dag: Dag) -> None:
        """Raise ComponentError if the DAG does not have the step or source."""
        if self.step and self.step not in (names := named_by(self.key, dag)):
            what = "source" if names is dag.sources else "step"
            raise self.entry.error(self.entry.name, f"a {what} of {dag.name}", nearest(self.step, names))


def _pod_settings(step: str | None, entries: Mapping[str, Entry]) -> Iterator[_PodSetting]:
    """Yield the settings of a mapping: one for each name of ``env`` and the like, and for each item of a list."""
    for key, entry in entries.items():
        if "." in POD_FORMS[key]:
            for item, value in entry.mapping().items():
                yield _PodSetting(step, f"{key}.{item}", value)
        elif key in LISTS and isinstance(entry.content, list):
            yield from (_PodSetting(step, key, item) for item in entry.content)
        else:
            yield _PodSetting(step, key, entry)


def _item(parameter: Parameter, entry: Entry) -> str:
    """Return the text of a value, or of an item of a list; a mapping is converted to the text that it stands for."""
    form = parameter.reads.mapping if parameter.reads else None
    if form is None or not isinstance(entry.content, dict):
        text = entry.text()
    else:
        with entry.named():
            text = form.text({name: item.text() for name, item in entry.mapping().items()})
    if form and parameter.reads:
        with entry.named():
            parameter.reads.parse([text])
    return text


def add_file_option(parser: argparse.ArgumentParser) -> None:
    """Add ``-f``, which `files_of` reads before the parser does."""
    text = "a run file: pipeline, values and options in YAML (docs/run_file.md); another -f overrides it key by key"
    parser.add_argument("-f", "--file", action="append", type=Path, metavar="FILE.yaml", help=text)
    parser.set_defaults(run_file=RunFile())


def files_of(words: Sequence[str]) -> list[Path]:
    """Return the values of ``-f`` in a command line."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("-f", "--file", action="append", default=[], type=Path)
    try:
        return list(parser.parse_known_args(words)[0].file)
    except argparse.ArgumentError:  # -f without a value: the parser of the command reports it
        return []
