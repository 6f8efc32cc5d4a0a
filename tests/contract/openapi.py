"""GitHub's own description of its API (npm `@octokit/openapi`), to check requests and answers.

    contract.validate_request(method, path, query, body)
    contract.validate_response(method, path, status, headers, body)
    contract.validate_webhook(event, payload)

Each raises `ContractError` with what is wrong and where. Import the `contract` fixture from here.

The description is OpenAPI 3.0: `nullable` is rewritten for JSON Schema, and only what an operation
reaches is compiled. Where it says nothing, this is stricter than GitHub (unknown query parameters and
body fields are errors: they would be typos of ours), except that it leaves most error answers
undeclared: those are held to the shape all of GitHub's errors have.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

_MODULES = Path(__file__).parent / "node_modules" / "@octokit"
_DESCRIPTION = _MODULES / "openapi" / "generated" / "api.github.com.json"
_CLOUD = _MODULES / "openapi" / "generated" / "ghec.json"
_EXAMPLES = _MODULES / "webhooks-examples" / "api.github.com" / "index.json"

#: Operations that only the description of Enterprise Cloud has.
_CLOUD_PATHS = (
    "/orgs/{org}/actions/runners/deprecations/{version}",
    "/repos/{owner}/{repo}/actions/runners/deprecations/{version}",
)

#: Values in a schema that are data, not schemas.
_DATA = frozenset({"enum", "default", "example", "examples", "const", "required"})

_Json = dict[str, Any]


class ContractError(AssertionError):
    """GitHub would not have said it, or would not have understood it."""


def require(path: Path) -> Path:
    """Skip where npm's packages are missing, or fail where they must not be (`.ci/run`)."""
    if path.exists():
        return path
    reason = (
        "GitHub's description is not installed; run `npm ci --prefix tests/contract` "
        "(needs npm) to have answers and requests checked against it."
    )
    if os.environ.get("PADDOCK_REQUIRE_CONTRACT") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def load() -> Contract:
    description = json.loads(require(_DESCRIPTION).read_text())
    cloud = json.loads(require(_CLOUD).read_text())
    description["paths"] |= {path: cloud["paths"][path] for path in _CLOUD_PATHS}
    return Contract(description)


def webhook_examples(event: str) -> list[_Json]:
    """Real payloads of one event, from npm `@octokit/webhooks-examples`."""
    for entry in json.loads(require(_EXAMPLES).read_text()):
        if entry["name"] == event:
            return list(entry["examples"])
    raise LookupError(f"There are no examples of {event!r}.")


@pytest.fixture(scope="session")
def contract() -> Contract:
    return load()


@dataclass(frozen=True)
class Operation:
    method: str
    template: str
    path_values: Mapping[str, str]
    description: _Json

    def __str__(self) -> str:
        return f"{self.method.upper()} {self.template}"


@dataclass
class Contract:
    description: _Json
    _validators: dict[str, Any] = field(default_factory=dict)

    def operation(self, method: str, path: str) -> Operation:
        """Literal parts of a path win over parameters, as in GitHub's own routing."""
        parts = path.strip("/").split("/")
        best: Operation | None = None
        for template, methods in self.description["paths"].items():
            if method.lower() not in methods:
                continue
            values = _match(template.strip("/").split("/"), parts)
            if values is not None and (best is None or len(values) < len(best.path_values)):
                best = Operation(method.lower(), template, values, methods[method.lower()])
        if best is None:
            raise ContractError(f"GitHub has no {method.upper()} {path}.")
        return best

    def validate_request(
        self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None
    ) -> Operation:
        operation = self.operation(method, path)
        parameters = [self._resolve(one) for one in operation.description.get("parameters", [])]
        given = {"path": dict(operation.path_values), "query": dict(query or {})}
        for where, values in given.items():
            known = {one["name"]: one for one in parameters if one["in"] == where}
            for name, value in values.items():
                if name not in known:
                    raise ContractError(f"{operation} has no {where} parameter {name!r}.")
                self._check(known[name]["schema"], _typed(value), f"{operation} {where} {name}")
            for name, one in known.items():
                if one.get("required") and name not in values:
                    raise ContractError(f"{operation} needs the {where} parameter {name!r}.")
        self._validate_body(operation, body)
        return operation

    def _validate_body(self, operation: Operation, body: Any) -> None:
        described = operation.description.get("requestBody")
        if described is None:
            if body is not None:
                raise ContractError(f"{operation} takes no body.")
            return
        described = self._resolve(described)
        if body is None:
            if described.get("required"):
                raise ContractError(f"{operation} needs a body.")
            return
        schema = self._resolve(described["content"]["application/json"]["schema"])
        self._check(schema, body, f"{operation} body")
        if isinstance(body, dict) and "properties" in schema:
            unknown = body.keys() - schema["properties"].keys()
            if unknown:
                raise ContractError(f"{operation} body has no field {', '.join(sorted(unknown))}.")

    def validate_response(
        self, method: str, path: str, status: int, headers: Mapping[str, str], body: Any
    ) -> Operation:
        """`body`: decoded JSON, or None if there was none."""
        operation = self.operation(method, path)
        described = operation.description["responses"].get(str(status))
        if described is None:
            if status < 400:
                declared = ", ".join(operation.description["responses"])
                raise ContractError(f"{operation} never answers {status}, only {declared}.")
            self._check_error(body, f"{operation} {status}")
            return operation
        described = self._resolve(described)
        content = described.get("content", {}).get("application/json")
        if content is None:
            if body is not None:
                raise ContractError(f"{operation} {status} has no body.")
            return operation
        kind = {name.lower(): value for name, value in headers.items()}.get("content-type", "")
        if not kind.startswith("application/json"):
            raise ContractError(f"{operation} {status} is JSON, not {kind!r}.")
        self._check(content["schema"], body, f"{operation} {status}")
        return operation

    def _check_error(self, body: Any, where: str) -> None:
        self._check({"$ref": "#/components/schemas/basic-error"}, body, where)
        if not isinstance(body.get("message"), str):
            raise ContractError(f"{where}: an error of GitHub's has a message.")

    def validate_webhook(self, event: str, payload: _Json) -> None:
        action = payload.get("action")
        name = "-".join(filter(None, (event, action))).replace("_", "-")
        described = self.description["x-webhooks"].get(name)
        if described is None:
            raise ContractError(f"GitHub sends no {event} event with action {action!r}.")
        content = described["post"]["requestBody"]["content"]["application/json"]
        self._check(content["schema"], payload, f"webhook {name}")

    def _resolve(self, node: _Json) -> _Json:
        while "$ref" in node:
            node = self._at(node["$ref"])
        return node

    def _at(self, reference: str) -> _Json:
        node: Any = self.description
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
        assert isinstance(node, dict)
        return node

    def _check(self, schema: _Json, value: Any, where: str) -> None:
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            self._validators[key] = jsonschema_rs.Draft4Validator(
                self._compilable(schema), validate_formats=True
            )
        problems = [
            f"  at {'/'.join(map(str, error.instance_path)) or 'the root'}: {error.message[:300]}"
            for error in self._validators[key].iter_errors(value)
        ]
        if problems:
            raise ContractError("\n".join([f"{where}:", *problems]))

    def _compilable(self, schema: _Json) -> _Json:
        """A JSON Schema with everything it refers to."""
        components: dict[str, _Json] = {}
        todo = [schema]
        while todo:
            for reference in _references(todo.pop()):
                name = reference.removeprefix("#/components/schemas/")
                if name not in components:
                    target = self._at(reference)
                    components[name] = to_json_schema(target)
                    todo.append(target)
        root: _Json = {"allOf": [to_json_schema(schema)], "components": {"schemas": components}}
        return root


def _match(template: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(template) != len(parts):
        return None
    values = {}
    for wanted, given in zip(template, parts, strict=True):
        if wanted.startswith("{"):
            values[wanted.strip("{}")] = given
        elif wanted != given:
            return None
    return values


def _typed(value: Any) -> Any:
    """A parameter as the description types it: numbers travel as text."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value) else value


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        found = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return found + [
            one for key, value in node.items() if key not in _DATA for one in _references(value)
        ]
    return [one for value in node for one in _references(value)] if isinstance(node, list) else []


def to_json_schema(node: Any) -> Any:
    """OpenAPI 3.0's dialect as JSON Schema draft 4."""
    if isinstance(node, list):
        return [to_json_schema(one) for one in node]
    if not isinstance(node, dict):
        return node
    rewritten = {
        key: value if key in _DATA else to_json_schema(value)
        for key, value in node.items()
        if key != "nullable" or isinstance(value, dict)  # a property may have that name
    }
    if _is_user_and_enterprise(node):
        # An account that is a user *and* an enterprise at once does not exist; elsewhere the
        # description says "any of" for the same thing.
        rewritten["anyOf"] = rewritten.pop("allOf")
    if node.get("nullable") is True:
        return {"anyOf": [rewritten, {"type": "null"}]}
    return rewritten


def _is_user_and_enterprise(node: _Json) -> bool:
    titles = [one.get("title") for one in node.get("allOf", []) if isinstance(one, dict)]
    return titles == ["Simple User", "Enterprise"]
