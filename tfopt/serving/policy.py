"""Policies: rules of an organisation for what is pushed, which a run may tighten and not weaken.

A policy is ``policy.yaml`` in a destination, or the file that the environment variable ``TFOPT_POLICY`` names, for all
destinations. If there are both, both hold. The rules are checked when a DAG gets its values (``tfopt plan``, ``run``,
``compile``, ``submit``, ``schedule``), and by `push_model` on what the run did.
"""

import fnmatch
import logging
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NoReturn, cast

from tfopt.artifacts.formats import FORMATS
from tfopt.errors import ComponentError
from tfopt.formatting import whole
from tfopt.measurement.goals import Goal, read_goals
from tfopt.metric_table import HIGHER_IS_BETTER, find_metric
from tfopt.reports import report_schema
from tfopt.reports.decision_report import DecisionReport
from tfopt.storage import remote_files
from tfopt.value_types import JsonObject

if TYPE_CHECKING:
    from tfopt.declaration.yaml_entries import Entry

FILE, VARIABLE = "policy.yaml", "TFOPT_POLICY"
INTERVAL = "interval"  # the confidence with which goals are proven
FLAGS = ("signature", "serving_test", "replay", "approval")
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Policy:
    """The rules of one file; a rule that is not in it is not checked."""

    schema_version: ClassVar[int] = 1
    owner: str  # a person, team or address, for questions about the policy
    goals: tuple[str, ...] = ()  # goals of `select_model` that a run must have, or stricter ones, with proof
    min_records: int = 0  # examples that quality must be measured on
    formats: tuple[str, ...] = tuple(FORMATS)  # of the selected model
    images: tuple[str, ...] = ("*",)  # patterns of container images on Kubeflow, such as registry.example/*
    signature: bool = False  # True if each version must be signed
    serving_test: bool = False  # True if `validate_serving` must have tested the model
    replay: bool = False  # True if `replay` must have compared the model with the served version, if there is one
    approval: bool = False  # True if one of the approvers must have signed an approval (`tfopt.serving.approvals`)
    approvers: tuple[str, ...] = ()  # files with their public keys (PEM), relative to this file
    source: str = ""  # the file, for errors

    def refuse(self, rule: str, received: str, fix: str) -> NoReturn:
        """Raise ComponentError for something that violates a rule."""
        expected = f"the rule {rule} of the policy {self.source} (owner: {self.owner})"
        raise ComponentError(received, expected, fix)

    def check_goals(self, who: str, goals: Sequence[str], confidence: str | None = INTERVAL) -> None:
        """Raise ComponentError if a required goal is missing among the goals of a run, or is weaker, or not proven."""
        for text, required in zip(self.goals, read_goals(self.goals), strict=True):
            if not any(_is_as_strict(goal, required) for goal in read_goals(goals)):
                self.refuse("goals", f"{who}: goals {', '.join(goals) or 'none'}", f"add the goal {text!r}")
        if self.goals and confidence not in (None, INTERVAL):
            self.refuse("goals", f"{who}: confidence={confidence}, which proves no goal", "leave confidence out")

    def failure(self, format: str, records: int) -> str | None:
        """Return why a model of a format, evaluated on a number of examples, may not be pushed; None if it may."""
        if format not in self.formats:
            return f"its format is {format}; the policy {self.source} ({self.owner}) allows {', '.join(self.formats)}"
        if records < self.min_records:
            least = f"{self.min_records:,}"
            return f"evaluated on {records:,} examples; the policy {self.source} ({self.owner}) requires {least}"
        return None

    def check_push(
        self,
        format: str,
        decision: DecisionReport | None,
        digest: str,
        *,
        signed: bool,
        tested: bool,
        replayed: bool,
    ) -> None:
        """Raise ComponentError if a model may not be pushed.

        Args:
            format: The format of the model.
            decision: The decision that selected it.
            digest: The digest of the model, or of the one that it replaces.
            signed: True if the version is signed.
            tested: True if `validate_serving` has tested the model.
            replayed: True if `replay` has compared it with the served version, or no version is served.
        """
        if decision and decision.selected_digest == digest:
            self.check_goals("the decision", decision.goals, decision.confidence)
        elif self.goals or self.min_records:
            rule = "goals" if self.goals else "min_records"
            self.refuse(rule, "no decision about this model", "pass the decision of the same select_model step")
        if failure := self.failure(format, decision.records if decision else 0):
            self.refuse("formats" if format not in self.formats else "min_records", failure, "select another model")
        if self.signature and not signed:
            self.refuse("signature", "no signing_key", "pass signing_key=FILE with a private key")
        if self.serving_test and not tested:
            self.refuse("serving_test", "no infra_blessing", "pass that of validate_serving")
        if self.replay and not replayed:
            fix = "pass the infra_blessing of replay, which recorded requests are sent to"
            self.refuse("replay", "no infra_blessing of replay for the pushed model", fix)

    def is_signed(self, verify: Callable[[Path], bool]) -> bool:
        """Return True if a signature is verified with the public key of one of the approvers."""
        with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
            file = Path(folder, "public.pem")
            for key in self.approvers:
                file.write_bytes(_read_key(self.source, key))
                if verify(file):
                    return True
        return False

    def check_images(self, references: Sequence[str]) -> None:
        """Raise ComponentError if an image does not match a pattern."""
        for reference in references:
            if not any(fnmatch.fnmatchcase(reference, pattern) for pattern in self.images):
                fix = f"pass --image with an image like {', '.join(self.images)}"
                self.refuse("images", f"image {reference}", fix)


def read_policies(destination: str | None, *, here: bool = True) -> list[Policy]:
    """Return the policies that hold for a destination; raise ComponentError if one cannot be read.

    If the push is not made ``here``, an object store that cannot be reached is a warning: `push_model` reads it again.
    """
    policies = []
    if general := os.environ.get(VARIABLE):
        content = remote_files.read_file(general)
        if content is None:
            fix = f"correct {VARIABLE}, or unset it if there is no policy"
            raise ComponentError(f"{VARIABLE}={general}: no such file", "a policy", fix)
        policies.append(_parse(content, general))
    if destination:
        address = remote_files.join(destination, FILE)
        file = Path(address).expanduser()
        if not remote_files.is_remote(address) and os.path.lexists(file) and not file.is_file():
            fix = "write the policy there, or remove it if there is none"
            raise ComponentError(f"{address}: a folder, a device, or a link to nothing", "a policy", fix)
        try:
            content = remote_files.read_file(address)
        except NotADirectoryError:  # `push_model` refuses the destination
            content = None
        except ComponentError as error:
            if here or not remote_files.is_remote(address):
                raise
            log.warning("the policy of %s is not checked now, but by push_model: %s", destination, error.received)
            content = None
        if content is not None:
            policies.append(_parse(content, address))
    return policies


def _parse(content: bytes, source: str) -> Policy:
    """Parse a policy: a rule with two values, none, or one that cannot be read is an error, not a rule less."""
    from tfopt.declaration.yaml_entries import parse_entries  # imports PyYAML

    entries = parse_entries(content, Path(source))
    entries.mapping([name for name in Policy.__dataclass_fields__ if name != "source"])
    rules: JsonObject = {"source": source}
    for name, entry in cast("dict[str, Entry]", entries.content or {}).items():
        if isinstance(entry.content, list):
            rules[name] = [item.literal() for item in entry.content]
        else:
            text = entry.literal()
            is_number = re.fullmatch(r"\d{1,18}", text) and name != "owner"
            rules[name] = int(text) if is_number else BOOLEANS.get(text.lower(), text) if name in FLAGS else text
    policy = report_schema.parse(Policy, rules, source)
    try:
        read_goals(policy.goals)
    except ComponentError as error:
        raise ComponentError(f"{source}: {error.received}", error.expected, error.fix) from None
    if others := sorted(set(policy.formats) - FORMATS.keys()):
        received = f"{source}: formats {', '.join(others)}"
        raise ComponentError(received, f"some of {', '.join(FORMATS)}", "correct them")
    if policy.approval and not policy.approvers:
        fix = "add approvers: [public.pem], the public key of each person who may approve"
        raise ComponentError(f"{source}: approval without approvers", "the keys of the approvers", fix)
    for key in policy.approvers:
        _read_key(source, key)
    return policy


def _read_key(source: str, key: str) -> bytes:
    """Read the public key of an approver, whose path is relative to the policy; raise ComponentError without one."""
    folder = source.rpartition("/")[0] if remote_files.is_remote(source) else str(Path(source).expanduser().parent)
    address = key if remote_files.is_remote(key) or key.startswith(("/", "~")) else remote_files.join(folder, key)
    content = remote_files.read_file(address)
    if content is None:
        received = f"{source}: approvers: no file {address}"
        raise ComponentError(received, "a file with a public key, relative to the policy", "correct the path")
    return content


def _is_as_strict(goal: Goal, required: Goal) -> bool:
    """Return True if a model that meets the goal meets the required one, too."""
    if (goal.metric, goal.kind, goal.relative) != (required.metric, required.kind, required.relative):
        return False
    row = find_metric(whole(goal.metric))
    is_better = row.higher_is_better if row else whole(goal.metric).endswith(HIGHER_IS_BETTER)
    is_least = goal.kind == "min_improvement" or (goal.kind == "threshold" and is_better)
    return goal.number >= required.number if is_least else goal.number <= required.number
