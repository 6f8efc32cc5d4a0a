"""`/openapi.json`, made from the types that decode the requests and encode the answers, so that it
always agrees with them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec

import paddock
from paddock.github.payloads import InstallationEvent, WorkflowJobEvent
from paddock.github.webhooks import (
    EVENT_PATTERN,
    FORM_TYPE,
    GUID_PATTERN,
    JSON_TYPE,
    SIGNATURE_PATTERN,
    Envelope,
)
from paddock.web.answers import Accepted, Health, Problem, WebhookRefusal
from paddock.web.api_description import described, described_types
from paddock.web.pods import Acknowledgement, Jit, LeaveBody, VitalsBody

WEBHOOKS: Final = "/webhooks/github"

_TYPES: Final = (
    *(WorkflowJobEvent, InstallationEvent, Envelope, Accepted, Problem, Health),
    *(Jit, LeaveBody, Acknowledgement, VitalsBody),
)
_REF: Final = "#/components/schemas/{name}"


def document(*, with_pods: bool, with_console: bool = True) -> dict[str, Any]:
    types = (*_TYPES, *(described_types() if with_console else ()))
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {"title": "paddock", "version": paddock.__version__},
        "paths": {
            WEBHOOKS: {"post": _webhook()},
            "/healthz": {"get": _get("Whether the process is alive", {200: Health})},
            "/readyz": {"get": _get("Whether it can do its work now", {200: Health, 503: Problem})},
            "/metrics": {"get": _plain("Prometheus' metrics", "text/plain")},
            "/openapi.json": {"get": _plain("This document", JSON_TYPE)},
            **(_pods() if with_pods else {}),
            **(described() if with_console else {}),
        },
        "components": {
            "schemas": components,
            "securitySchemes": {
                "pod": {"type": "http", "scheme": "bearer"},
                "operator": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _pods() -> dict[str, Any]:
    refused = dict.fromkeys((400, 401, 403, 503), Problem)
    return {
        "/v1/dispatch": {
            "post": {
                "summary": "A Pod asks for work; held until there is some",
                "security": [{"pod": []}],
                "parameters": [
                    {
                        "name": "wait",
                        "in": "query",
                        "description": "For how many seconds, at most",
                        "schema": {"type": "number", "minimum": 0, "maximum": 3600},
                    }
                ],
                "responses": {**_responses({200: Jit, 410: LeaveBody, **refused}), "204": _NOTHING},
            }
        },
        "/v1/dispatch/ack": {
            "post": _pod_post(
                "A Pod holds its JIT",
                Acknowledgement,
                {409: Problem, 410: LeaveBody, 413: Problem, **refused},
            )
        },
        "/v1/vitals": {
            "post": _pod_post(
                "What a runner measured of itself",
                VitalsBody,
                {410: LeaveBody, 413: Problem, 429: Problem, **refused},
            )
        },
    }


_NOTHING: Final = {"description": HTTPStatus.NO_CONTENT.phrase}


def _pod_post(summary: str, body: type, answers: dict[int, type]) -> dict[str, Any]:
    return {
        "summary": summary,
        "security": [{"pod": []}],
        "requestBody": {"required": True, "content": {JSON_TYPE: {"schema": _schema(body)}}},
        "responses": {**_responses(answers), "204": _NOTHING},
    }


def _webhook() -> dict[str, Any]:
    events = [_schema(kind) for kind in (WorkflowJobEvent, InstallationEvent, Envelope)]
    refused = {refusal.status: Problem for refusal in WebhookRefusal}
    return {
        "summary": "A webhook of a configured GitHub App",
        "parameters": [
            _header("X-Hub-Signature-256", SIGNATURE_PATTERN),
            _header("X-GitHub-Event", EVENT_PATTERN),
            _header("X-GitHub-Delivery", GUID_PATTERN),
        ],
        "requestBody": {
            "required": True,
            "content": {
                JSON_TYPE: {"schema": {"anyOf": events}},
                FORM_TYPE: {
                    "schema": {
                        "type": "object",
                        "required": ["payload"],
                        "properties": {
                            "payload": {
                                "type": "string",
                                "contentMediaType": JSON_TYPE,
                                "contentSchema": {"anyOf": events},
                            }
                        },
                    }
                },
            },
        },
        "responses": _responses({202: Accepted, 200: Accepted, **refused}),
    }


def _get(summary: str, answers: dict[int, type]) -> dict[str, Any]:
    return {"summary": summary, "responses": _responses(answers)}


def _plain(summary: str, media_type: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "responses": {"200": {"description": summary, "content": {media_type: {}}}},
    }


def _responses(answers: dict[int, type]) -> dict[str, Any]:
    return {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": {JSON_TYPE: {"schema": _schema(kind)}},
        }
        for status, kind in sorted(answers.items())
    }


def _header(name: str, pattern: str) -> dict[str, Any]:
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "header", "required": True, "schema": schema}


def _schema(kind: type) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}
