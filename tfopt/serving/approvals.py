"""Approvals: signed statements of a person about a model and the decision that selected it.

``DESTINATION/approvals/MODEL-STATEMENT.json`` has a statement, as text, and a signature of it, in the form of those of
pushed versions (`tfopt.serving.version_manifest`). A policy (`tfopt.serving.policy`) names the keys that count.
"""

import datetime
import hashlib
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from tfopt.artifacts import Decision, Model
from tfopt.errors import ComponentError
from tfopt.model_store.withdrawals import user_name
from tfopt.reports import report_schema
from tfopt.serving.policy import Policy
from tfopt.serving.version_manifest import sign_text, verify_text
from tfopt.storage import remote_files

FOLDER = "approvals"
NAME = "approval.json"  # of the statement, for its signature


@dataclass(frozen=True)
class Approval:
    """Statement that a person has signed."""

    schema_version: ClassVar[int] = 1
    model: str  # digest of the model
    decision: str | None  # SHA-256 of the decision; None if the model alone was approved
    by: str
    time: str  # ISO 8601 in UTC


@dataclass(frozen=True)
class SignedApproval:
    """The content of the file."""

    schema_version: ClassVar[int] = 1
    statement: str  # an `Approval`, as the JSON text that is signed
    signature: str


def approve(path: str, destination: str, key: str, by: str | None = None) -> tuple[str, Approval]:
    """Sign an approval of a decision, or of a model, and write it into a destination; return its address, too.

    Raises:
        ComponentError: If the path is neither, the key cannot sign, or the destination cannot be written.
    """
    remote_files.check_scheme(path)
    remote_files.check_scheme(destination)
    local = Path(remote_files.local_copy(path))
    folder = local.parent if local.name == Decision.file else local
    decision = None
    if (folder / Decision.file).is_file():
        content = Decision(str(folder)).load()
        model, decision = content.selected_digest, digest_of(Decision(str(folder)))
    else:
        model = Model.open(str(local)).digest
    time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    approval = Approval(model, decision, by or user_name(), time)
    statement = json.dumps(report_schema.dump(approval), indent=1, ensure_ascii=False)
    signed = SignedApproval(statement, sign_text(statement, NAME, key).decode())
    text = json.dumps(report_schema.dump(signed), indent=1, ensure_ascii=False) + "\n"
    name = f"{model[:16]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
    address = remote_files.join(destination, f"{FOLDER}/{name}")
    remote_files.write_file(address, text.encode())
    return address, approval


def check_approval(policy: Policy, destination: str, model: Model, decision: Decision | None) -> None:
    """Raise ComponentError if a policy requires an approval of a model, and none of its approvers has signed one."""
    if not policy.approval:
        return
    digest, reasons = digest_of(decision) if decision else None, []
    for address, signed in _read_approvals(destination, model.digest):
        approval = report_schema.parse_record(Approval, signed.statement.encode(), address)
        if approval.model != model.digest or approval.decision not in (None, digest):
            reasons.append(f"{address} is about another {'model' if approval.model != model.digest else 'decision'}")
        elif policy.is_signed(partial(_verify, signed)):
            return
        else:
            reasons.append(f"{address}, by {approval.by}, is not signed with a key of an approver")
    source = decision.uri if decision and decision.load().selected_digest == model.digest else model.uri
    command = f"tfopt approve {shlex.quote(source)} {shlex.quote(destination)} --key KEY.pem"
    received = "; ".join([f"no approval of the model {model.digest[:12]} ({model.name})", *reasons])
    policy.refuse("approval", received, f"let an approver look at the report and run {command}; then push again")


def digest_of(decision: Decision) -> str:
    """Return the SHA-256 of a decision's file."""
    return hashlib.sha256((decision.path / Decision.file).read_bytes()).hexdigest()


def _verify(signed: SignedApproval, key: Path) -> bool:
    try:
        verify_text(signed.statement, NAME, signed.signature.encode(), str(key))
    except ComponentError:
        return False
    return True


def _read_approvals(destination: str, digest: str) -> Iterator[tuple[str, SignedApproval]]:
    folder = remote_files.join(destination, FOLDER)
    for name in remote_files.list_names(folder):
        if name.startswith(digest[:16]):
            address = remote_files.join(folder, name)
            content = remote_files.read_file(address) or b""
            yield address, report_schema.parse_record(SignedApproval, content, address)
