"""Requests, replies, and GitHub's error answers, with the texts that it is known to use.

The texts matter: paddock distinguishes causes by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DOCUMENTATION = "https://docs.github.com/rest"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: Any = None


@dataclass(slots=True)
class Reply:
    status: int
    #: JSON values; None: no body; a text: HTML.
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    #: How long the reply takes; the transport waits that long.
    latency: float = 0.0
    #: The connection breaks instead of a reply.
    lost: bool = False


class ErrorResponse(Exception):
    """GitHub answers with an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: list[str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})
        self.errors = errors

    def reply(self) -> Reply:
        if self.status == 502:  # not even JSON: it comes from a proxy before GitHub's API
            return Reply(502, f"<html><title>{self.message}</title></html>\n", self.headers)
        body: dict[str, Any] = {
            "message": self.message,
            "documentation_url": DOCUMENTATION,
            "status": str(self.status),
        }
        if self.errors is not None:
            body["errors"] = self.errors
        return Reply(self.status, body, self.headers)


def not_found() -> ErrorResponse:
    return ErrorResponse(404, "Not Found")


def bad_credentials() -> ErrorResponse:
    return ErrorResponse(401, "Bad credentials")


def not_accessible() -> ErrorResponse:
    return ErrorResponse(403, "Resource not accessible by integration")


def suspended() -> ErrorResponse:
    return ErrorResponse(403, "This installation has been suspended")


def runners_disabled() -> ErrorResponse:
    return ErrorResponse(
        403, "Repository level self-hosted runners are disabled on this repository."
    )


def actions_disabled() -> ErrorResponse:
    return ErrorResponse(403, "GitHub Actions is disabled on this repository.")


def ip_not_permitted(organization: str) -> ErrorResponse:
    return ErrorResponse(
        403,
        "Although you appear to have the correct authorization credentials, the "
        f"`{organization}` organization has an IP allow list enabled, and your IP address is not "
        "permitted to access this resource.",
    )


def max_runners(group_id: int, limit: int) -> ErrorResponse:
    return ErrorResponse(
        422, f"Invalid Argument - Runner group {group_id} has reached max limit of {limit} runners."
    )


def name_exists() -> ErrorResponse:
    return ErrorResponse(409, "Already exists - A runner with the name *** already exists.")


def runner_busy(name: str) -> ErrorResponse:
    return ErrorResponse(422, f'Bad request - Runner "{name}" is still running a job"')


def invalid(*errors: str) -> ErrorResponse:
    return ErrorResponse(422, "Validation Failed", errors=list(errors))


def rate_limited(who: str, headers: Mapping[str, str]) -> ErrorResponse:
    return ErrorResponse(403, f"API rate limit exceeded for {who}.", headers=headers)


def secondary_limited(retry_after: int) -> ErrorResponse:
    return ErrorResponse(
        403,
        "You have exceeded a secondary rate limit. Please wait a few minutes before you try again. "
        "If you reach out to GitHub Support for help, please include the request ID.",
        headers={"retry-after": str(retry_after)},
    )


def server_error(status: int) -> ErrorResponse:
    return ErrorResponse(
        status, {502: "Bad Gateway", 503: "Service Unavailable"}.get(status, "Server Error")
    )
