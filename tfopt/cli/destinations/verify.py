"""The subcommand ``verify``: the chain from a pushed version to what it was made of."""

import argparse
import json

from tfopt.cli.arguments import Subparsers, add_command, add_json_option, add_list_option
from tfopt.errors import ComponentError
from tfopt.formatting import visible
from tfopt.reports import report_schema

BROKEN = 5  # exit code


def add_verify(subparsers: Subparsers) -> None:
    """Add ``tfopt verify``."""
    summary = "check what a pushed version consists of and was made of: files, signature, provenance, decision, data"
    description = (
        "Walk the chain from a pushed version to what it was made of, and say which link is missing or does not fit: "
        "its files and their manifest, the signature, the provenance (in-toto, SLSA), the model, the decision that "
        "selected it, data, module, recipe and images. A link is 'recorded' if its digest is known, and nothing was "
        "passed to compare it with."
    )
    parser = add_command(
        subparsers, "verify", _verify, summary, description, epilog=f"exit code {BROKEN}: a link breaks"
    )
    parser.add_argument("version", help="DESTINATION/NUMBER, a folder or address")
    parser.add_argument("--public-key", metavar="FILE", help="the public key that it must be signed with (PEM)")
    text = "what it was made of, to be compared, such as examples=FOLDER, module=model.py or decision=FOLDER"
    add_list_option(parser, "--material", "NAME=PATH", text)
    add_json_option(parser)


def _verify(arguments: argparse.Namespace) -> int:
    from tfopt.serving.version_chain import verify_chain  # imports NumPy

    materials = {}
    for text in arguments.material:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise ComponentError(f"--material {text}", "NAME=PATH", "write for example --material module=model.py")
        materials[name] = path
    chain = verify_chain(arguments.version, arguments.public_key, materials)
    if arguments.json:
        print(json.dumps(report_schema.dump(chain), indent=1))
    else:
        for link in chain.links:
            print(visible(f"{link.status:<12}{link.name}: {link.text}"))
        broken = ", ".join(link.name for link in chain.broken)
        print(visible(f"{arguments.version}: {f'the chain breaks at {broken}' if broken else 'no link is missing'}"))
    return BROKEN if chain.broken else 0
