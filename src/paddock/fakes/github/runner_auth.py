"""How a runner proves which registration it holds, and the tokens that it receives.

A runner signs an assertion with the key in its JIT configuration and gets a token for its messages.
With a job comes a second token, for that job alone. Both are JWTs: actions/runner reads them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import jwt

from paddock.fakes.github.jit import runner_key
from paddock.fakes.github.records import Job, JobStatus, Runner
from paddock.fakes.github.runner_ids import TOKEN_PATH
from paddock.fakes.github.runner_protocol import ProtocolError, unauthorized
from paddock.fakes.github.world import World

#: actions/runner without FIPS signs with RS256, all others with PS256.
_ALGORITHMS: Final = ["PS256", "RS256"]
_LISTENER_SECONDS: Final = 3000
#: A job runs at most five days.
_JOB_SECONDS: Final = 5 * 86_400
#: Runners' clocks are not exact.
_LEEWAY_SECONDS: Final = 300

#: What a request for a token says beside the assertion.
_GRANT: Final = {
    "grant_type": "client_credentials",
    "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
}
#: Times and the audience are checked here, by the model's clock and by the path alone.
_NO_TIMES: Final[jwt.types.Options] = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
}


class RunnerAuth:
    def __init__(self, world: World) -> None:
        self._world = world
        # Tokens are valid as long as this server lives. A seed's replay does not include them.
        self._key = secrets.token_bytes(32)

    def exchange(self, form: Mapping[str, list[str]]) -> dict[str, Any]:
        """The answer of the token endpoint."""
        if any(form.get(name) != [value] for name, value in _GRANT.items()):
            raise _invalid_client("The grant is not one for client assertions.")
        runner = self._asserted(form.get("client_assertion", [""])[0])
        return {
            "access_token": self._token(runner, _LISTENER_SECONDS, kind="listener"),
            "expires_in": _LISTENER_SECONDS,
            "token_type": "bearer",
        }

    def _asserted(self, assertion: str) -> Runner:
        try:
            # The key is found by the name that the assertion gives; then the signature is checked.
            claimed = jwt.decode(assertion, options={"verify_signature": False})
            runner = self._world.by_client_id.get(str(claimed.get("iss")))
            if runner is None or (runner.removed and not executes(runner)):
                raise _invalid_client(f"Registration {claimed.get('iss')} was not found.")
            jwt.decode(
                assertion,
                runner_key(runner.id).public,
                algorithms=_ALGORITHMS,
                options=_NO_TIMES,
            )
        except jwt.InvalidTokenError:
            raise _invalid_client("The client assertion is not valid.") from None
        now = self._world.time.timestamp()
        expires, begins = claimed.get("exp"), claimed.get("nbf", 0)
        if not isinstance(expires, int | float) or expires < now - _LEEWAY_SECONDS:
            raise _invalid_client("The client assertion has expired.")
        if not isinstance(begins, int | float) or begins > now + _LEEWAY_SECONDS:
            raise _invalid_client("The client assertion is not valid yet.")
        if claimed.get("sub") != claimed["iss"] or _path(claimed.get("aud")) != TOKEN_PATH:
            raise _invalid_client("The client assertion is for another service.")
        return runner

    def for_job(self, runner: Runner, job: Job) -> str:
        return self._token(runner, _JOB_SECONDS, kind="job", job=job.id)

    def _token(self, runner: Runner, seconds: int, **more: Any) -> str:
        now = int(self._world.time.timestamp())
        claims = {"sub": runner.client_id, "iat": now, "exp": now + seconds, **more}
        return jwt.encode(claims, self._key, algorithm="HS256")

    def runner(self, headers: Mapping[str, str]) -> Runner:
        """Which runner's listener calls. Its registration may be gone."""
        return self._named(self._claims(headers, "listener"))

    def job(self, headers: Mapping[str, str]) -> tuple[Runner, Job]:
        """Which job calls. It may be over."""
        claims = self._claims(headers, "job")
        job = self._world.jobs.get(claims.get("job", 0))
        if job is None:
            raise ProtocolError(404, {"message": "Not Found"})
        return self._named(claims), job

    def _named(self, claims: Mapping[str, Any]) -> Runner:
        runner = self._world.by_client_id.get(str(claims.get("sub")))
        if runner is None:
            raise unauthorized()
        return runner

    def _claims(self, headers: Mapping[str, str], kind: str) -> Mapping[str, Any]:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise unauthorized()
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token.strip(), self._key, algorithms=["HS256"], options=_NO_TIMES
            )
        except jwt.InvalidTokenError:
            raise unauthorized() from None
        if claims.get("kind") != kind or claims["exp"] <= self._world.time.timestamp():
            raise unauthorized()
        return claims


def executes(runner: Runner) -> bool:
    """As far as GitHub knows. A runner that executes a job may still call after its registration is
    gone: GitHub refuses to delete a busy one, and one deleted by mistake finishes its job."""
    return runner.job is not None and runner.job.status is JobStatus.IN_PROGRESS


def _path(audience: object) -> str:
    try:
        return urlsplit(audience).path if isinstance(audience, str) else ""
    except ValueError:
        return ""


def _invalid_client(description: str) -> ProtocolError:
    return ProtocolError(400, {"error": "invalid_client", "error_description": description})
