"""Checks of requests and responses against KFP's published OpenAPI (Swagger 2) description."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

SWAGGER = json.loads(Path(__file__).with_name("swagger.json").read_text())


class RefusedError(Exception):
    """A response with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def operation(method: str, path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the described operation of a path, and the values in the path."""
    for template, methods in SWAGGER["paths"].items():
        pattern = re.sub(
            r"\\{([\w.\\]+)\\}", lambda match: f"(?P<{match[1].split('.')[-1]}>[^/:]+)", re.escape(template)
        )
        matched = re.fullmatch(pattern, path)
        if matched and method.lower() in methods:
            return methods[method.lower()], matched.groupdict()
    raise RefusedError(404, f"{method} {path} is not in the API")


def check_query(described: dict[str, Any], query: dict[str, str]) -> None:
    declared = {entry["name"]: entry for entry in described.get("parameters", []) if entry["in"] == "query"}
    for name, value in query.items():
        if name not in declared:
            raise RefusedError(400, f"{described['operationId']} takes no {name!r}")
        if declared[name]["type"] == "integer" and not value.isdigit():
            raise RefusedError(400, f"{name}={value!r} is no integer")


def check_body(described: dict[str, Any], body: Any) -> None:
    declared = next((entry for entry in described.get("parameters", []) if entry["in"] == "body"), None)
    if declared is None and body:
        raise RefusedError(400, f"{described['operationId']} takes no body")
    if declared is not None:
        check(declared["schema"]["$ref"], body, 400)


def check_response(described: dict[str, Any], response: Any) -> None:
    schema = described["responses"]["200"]["schema"]
    if "$ref" in schema:
        check(schema["$ref"], response, 500)


def check(reference: str, value: Any, status: int) -> None:
    error = jsonschema.exceptions.best_match(_validator(reference).iter_errors(value))
    if error is not None:
        raise RefusedError(status, f"{reference}: {error.json_path}: {error.message}")


@cache
def _validator(reference: str) -> jsonschema.Draft4Validator:
    definitions = {name: _strict(schema) for name, schema in SWAGGER["definitions"].items()}
    return jsonschema.Draft4Validator({"$ref": reference, "definitions": definitions})


def _strict(schema: Any) -> Any:
    """Make a schema as strict as protobuf's JSON reader: no unknown fields, int64 as number or text."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    strict = {key: _strict(part) for key, part in schema.items()}
    if strict.get("format") == "int64":
        strict["type"] = ["string", "integer"]
    if "properties" in strict and strict.get("type") == "object":
        strict.setdefault("additionalProperties", False)
    return strict
