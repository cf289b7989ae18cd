"""The subcommand ``approve``: a signed approval of a model, which a policy may require before the push."""

import argparse
import json
from dataclasses import asdict

from tfopt.cli.arguments import Subparsers, add_command, add_json_option
from tfopt.formatting import visible


def add_approve(subparsers: Subparsers) -> None:
    """Add ``tfopt approve``."""
    summary = "sign that a model may be pushed to a destination whose policy requires an approval"
    description = (
        "Sign that the model that a decision selected, or a model, may be pushed: a signed file with their digests is "
        "written to DESTINATION/approvals. If the policy of the destination has approval: true, push_model requires an "
        "approval with the key of one of the approvers that the policy names."
    )
    parser = add_command(subparsers, "approve", _approve, summary, description)
    text = "the decision of a run, a folder or address, or a model"
    parser.add_argument("path", metavar="DECISION_OR_MODEL", help=text)
    parser.add_argument("destination", help="the folder or address of pushed versions")
    text = "a file with your private key (PEM, an elliptic curve); TFOPT_SIGNING_PASSWORD has its password"
    parser.add_argument("--key", required=True, metavar="FILE", help=text)
    parser.add_argument("--by", metavar="NAME", help="who approves (default: the user of this command)")
    add_json_option(parser)


def _approve(arguments: argparse.Namespace) -> int:
    from tfopt.serving.approvals import approve  # imports NumPy

    address, approval = approve(arguments.path, arguments.destination, arguments.key, arguments.by)
    if arguments.json:
        print(json.dumps({"file": address, **asdict(approval)}, indent=1))
        return 0
    decision = f", which the decision {approval.decision[:12]} selected" if approval.decision else ""
    print(visible(f"approved by {approval.by}: the model {approval.model[:12]}{decision}: {address}"))
    return 0
