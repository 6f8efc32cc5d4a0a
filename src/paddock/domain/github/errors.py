"""Every way in which GitHub refuses a request, as a closed set: which scope backs off, and how long.

One broken installation once absorbed every idle runner, because each refusal looked like bad luck and
was tried again with the next Pod (I17). Here an ordered table reads each refusal once and makes it a
`Failure`, which names the narrowest scope it is about. The texts are GitHub's own. Those it does not
document were seen in the logs of other projects. A refusal that matches no other row is `unknown`.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from paddock.domain.github.objects import AppKey, Operation

#: GitHub's rate windows are an hour long: a longer wait is a misread clock or a confused proxy.
LONGEST_TOLD_S: Final = 3600.0
#: The next request waits for at least a second, even if the reset is due now.
SHORTEST_TOLD_S: Final = 1.0
_SAID_MAX = 300


class Kind(StrEnum):
    INSTALLATION_SUSPENDED = "installation suspended"
    RUNNERS_DISABLED = "self-hosted runners disabled"
    ACTIONS_DISABLED = "Actions disabled"
    IP_NOT_PERMITTED = "IP not permitted"
    NOT_ACCESSIBLE = "not accessible"
    RUNNER_LIMIT = "maximum number of runners reached"
    PRIMARY_LIMIT = "primary rate limit"
    SECONDARY_LIMIT = "secondary rate limit"
    BUDGET_SPENT = "own budget spent"
    CLOCK_SKEW = "clock skew"
    WRONG_KEY = "wrong App or key"
    KEY_UNREADABLE = "key unreadable"
    NOT_CONFIGURED = "not configured"
    BAD_CREDENTIALS = "bad credentials"
    NAME_EXISTS = "name exists"
    RUNNER_BUSY = "runner busy"
    INVALID_REQUEST = "invalid request"
    MOVED = "moved"
    NOT_FOUND = "not found, unproven"
    NOT_FOUND_PROVEN = "not found, proven"
    OUTCOME_UNKNOWN = "outcome unknown"
    SERVER_ERROR = "server error"
    NO_ANSWER = "no answer"
    MALFORMED = "malformed answer"
    UNKNOWN = "unknown"


class BackOff(StrEnum):
    """The scope that sends GitHub no requests for a while; all others go on (I17)."""

    NONE = "none"
    JOB = "job"
    REPOSITORY = "repository"
    ACCOUNT = "account"
    APP = "app"


class Side(StrEnum):
    """The scope that backs off where that depends on the request."""

    THING = "what was asked for"  # one job, or else the scope
    SCOPE = "its scope"  # the repository or account, never a single job
    ASKER = "the asker"  # the account, or the App when it asked for itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A failed request, as the client saw it.

    `at` is the scope it was about. `status` is `None` if there was no answer; `sent` then says
    whether GitHub may have got the request all the same. `where` completes "GitHub … to": it names
    operation and scope for a reader.
    """

    operation: Operation
    at: BackOff
    where: str
    status: int | None
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    sent: bool = True
    malformed: bool = False
    proven: bool = False

    def says(self, pattern: re.Pattern[str]) -> bool:
        return pattern.search(self.message) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a refusal means.

    `retryable`: asking once more, at once, is harmless and may help. `ceiling_s` bounds how far the
    back-off grows while the same failure repeats.
    """

    kind: Kind
    backs_off: BackOff
    backoff_s: float
    ceiling_s: float
    retryable: bool
    sentence: str

    def after(self, failures: int, *, lasted: float = math.inf) -> float:
        """The back-off after `failures` failures in a row. GitHub asks for waits that grow
        exponentially, and may ban an App that goes on asking. The wait is at most twice as long as the
        row has lasted: the failures before may have been of another kind, with first waits of seconds
        instead of minutes."""
        grown = self.backoff_s * 2.0 ** min(max(failures - 1, 0), 16)
        return min(grown, self.ceiling_s, max(self.backoff_s, 2 * lasted))

    @property
    def unsettled(self) -> bool:
        """Whether the request may have taken effect at GitHub although there is no good answer. The
        runner's name is then a debt until its fate at GitHub is known (I41)."""
        return self.kind is Kind.OUTCOME_UNKNOWN


class GitHubError(Exception):
    """A request to GitHub that failed; `failure` says how, its sentence is fit for a user."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRule:
    """A row of the table. `when` says in words what `test` tests."""

    kind: Kind
    when: str
    test: Callable[[Trouble], bool]
    backs_off: BackOff | Side
    seconds: float
    ceiling: float
    sentence: str
    retryable: bool = False


def _remaining(trouble: Trouble) -> str | None:
    return trouble.headers.get("x-ratelimit-remaining")


def _phrase(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_SUSPENDED = _phrase(r"installation has been suspended")
_RUNNERS_DISABLED = _phrase(r"self-hosted runners are disabled")
_ACTIONS_DISABLED = _phrase(r"actions (?:is|are|has been|have been) disabled")
_IP = _phrase(r"IP address is not permitted")
_RUNNER_LIMIT = _phrase(r"max(?:imum)? (?:limit|number) of [\w\s-]*runners")
_SECONDARY = _phrase(r"secondary rate limit|abuse detection")
_PRIMARY = _phrase(r"API rate limit exceeded")
_CLAIM = _phrase(r"claim \('(?:exp|iat)'\)")
_KEY = _phrase(r"JSON web token could not be decoded|must generate a public key")
_NO_APP = _phrase(r"integration not found")
_NOT_ACCESSIBLE = _phrase(r"not accessible by integration")

_MINUTE, _HOUR = 60.0, 3600.0

#: First match wins. Rules about texts come before rules about headers: the last request of a window
#: carries `x-ratelimit-remaining: 0`, for any reason of refusal.
RULES: Final[tuple[ErrorRule, ...]] = (
    ErrorRule(
        kind=Kind.OUTCOME_UNKNOWN,
        when="what must not be repeated was sent, and its answer is lost, broken or a 5xx",
        test=lambda t: (
            not t.operation.repeatable
            and ((t.status is None and t.sent) or t.malformed or (t.status or 0) >= 500)
        ),
        backs_off=Side.SCOPE,
        seconds=5.0,
        ceiling=5 * _MINUTE,
        sentence="It is not known whether GitHub carried out the request to {where}{said}; it is"
        " not repeated, and paddock will look what became of it.",
    ),
    ErrorRule(
        kind=Kind.NO_ANSWER,
        when="the request never left: no connection, no proxy, no name",
        test=lambda t: t.status is None and not t.sent,
        backs_off=BackOff.APP,
        seconds=5.0,
        # All accounts wait. A request that never left costs GitHub nothing, so they try again soon.
        ceiling=_MINUTE / 4,
        retryable=True,
        sentence="GitHub could not be reached to {where}{said}. If this goes on, check the network,"
        " the proxy settings and the certificates.",
    ),
    ErrorRule(
        kind=Kind.NO_ANSWER,
        when="no answer in time, or the connection was cut",
        test=lambda t: t.status is None,
        # One repository whose lists take too long must not stop all the others (I17).
        backs_off=Side.SCOPE,
        seconds=5.0,
        ceiling=2 * _MINUTE,
        retryable=True,
        sentence="GitHub gave no answer to the request to {where}{said}. If this goes on, look at"
        " GitHub's status page.",
    ),
    ErrorRule(
        kind=Kind.INSTALLATION_SUSPENDED,
        when='403 "This installation has been suspended"',
        test=lambda t: t.status in (401, 403, 404) and t.says(_SUSPENDED),
        backs_off=BackOff.ACCOUNT,
        seconds=10 * _MINUTE,
        ceiling=_HOUR,
        sentence="GitHub refused to {where}: the App's installation is suspended. An owner of the"
        " account can resume it in the account's settings, under GitHub Apps.",
    ),
    ErrorRule(
        kind=Kind.RUNNERS_DISABLED,
        when='403 "… self-hosted runners are disabled on this repository"',
        test=lambda t: t.status in (403, 404, 409, 422) and t.says(_RUNNERS_DISABLED),
        backs_off=BackOff.REPOSITORY,
        seconds=10 * _MINUTE,
        ceiling=_HOUR,
        sentence="GitHub refused to {where}: self-hosted runners are disabled for this repository."
        " An owner can allow them in the organisation's settings, under Actions, Runners.",
    ),
    ErrorRule(
        kind=Kind.ACTIONS_DISABLED,
        when='403 "GitHub Actions is disabled on this repository"',
        test=lambda t: t.status in (403, 404, 409, 422) and t.says(_ACTIONS_DISABLED),
        backs_off=Side.SCOPE,
        seconds=10 * _MINUTE,
        ceiling=_HOUR,
        sentence="GitHub refused to {where}: Actions is disabled there. It can be enabled in the"
        " settings of the repository or organisation, under Actions.",
    ),
    ErrorRule(
        kind=Kind.IP_NOT_PERMITTED,
        when='403 "… your IP address is not permitted to access this resource"',
        test=lambda t: t.status in (401, 403) and t.says(_IP),
        backs_off=BackOff.ACCOUNT,
        seconds=10 * _MINUTE,
        ceiling=_HOUR,
        sentence="GitHub refused to {where}: the account has an IP allow list that does not contain"
        " paddock's address. An owner has to add the address requests leave from.",
    ),
    ErrorRule(
        kind=Kind.RUNNER_LIMIT,
        when='403 or 422 "… has reached max limit of 10000 runners"',
        test=lambda t: t.status in (403, 409, 422) and t.says(_RUNNER_LIMIT),
        backs_off=Side.SCOPE,
        seconds=5 * _MINUTE,
        ceiling=_HOUR,
        sentence="GitHub refused to {where}: the runner group is full{said}. Remove offline runners"
        " there, or wait until GitHub removes them (a day for ephemeral ones).",
    ),
    ErrorRule(
        kind=Kind.SECONDARY_LIMIT,
        when='403 or 429 "… secondary rate limit …"',
        test=lambda t: t.status in (403, 429) and t.says(_SECONDARY),
        backs_off=Side.ASKER,
        seconds=_MINUTE,
        ceiling=_HOUR,
        sentence="GitHub refused to {where}: too many requests in a short time. Nothing needs to be"
        " done; the account pauses, and no other. If it happens often, lower the App's budgets in the"
        " settings.",
    ),
    ErrorRule(
        kind=Kind.NOT_ACCESSIBLE,
        when='403 "Resource not accessible by integration"',
        test=lambda t: t.status == 403 and t.says(_NOT_ACCESSIBLE),
        backs_off=Side.SCOPE,
        seconds=10 * _MINUTE,
        ceiling=_HOUR,
        sentence="GitHub refused to {where}: the App's installation may not do that. Check the"
        " App's permissions, and that the installation includes this repository.",
    ),
    ErrorRule(
        kind=Kind.PRIMARY_LIMIT,
        when='403 or 429 with x-ratelimit-remaining 0 or "API rate limit exceeded"',
        test=lambda t: t.status in (403, 429) and (_remaining(t) == "0" or t.says(_PRIMARY)),
        backs_off=Side.ASKER,
        seconds=_MINUTE,
        ceiling=_HOUR,
        sentence="GitHub refused to {where}: the hourly quota is used up. Nothing needs to be done;"
        " requests go on when it is renewed.",
    ),
    ErrorRule(
        kind=Kind.SECONDARY_LIMIT,
        when="429, or 403 with retry-after",
        test=lambda t: t.status == 429 or (t.status == 403 and "retry-after" in t.headers),
        backs_off=Side.ASKER,
        seconds=_MINUTE,
        ceiling=_HOUR,
        sentence="GitHub refused to {where}: too many requests in a short time. Nothing needs to be"
        " done; the account pauses, and no other. If it happens often, lower the App's budgets in the"
        " settings.",
    ),
    ErrorRule(
        kind=Kind.CLOCK_SKEW,
        when="401 about the JWT's exp or iat claim",
        test=lambda t: t.status == 401 and t.says(_CLAIM),
        backs_off=BackOff.APP,
        seconds=_MINUTE,
        ceiling=10 * _MINUTE,
        sentence="GitHub refused to {where}: this machine's clock differs too much from GitHub's"
        "{said}. Set the clock, for example by running an NTP service.",
    ),
    ErrorRule(
        kind=Kind.WRONG_KEY,
        when="401 that the JWT cannot be decoded, or 404 that there is no such App",
        test=lambda t: (
            (t.status == 401 and t.says(_KEY)) or (t.status in (401, 404) and t.says(_NO_APP))
        ),
        backs_off=BackOff.APP,
        seconds=_MINUTE,
        ceiling=10 * _MINUTE,
        sentence="GitHub refused to {where}: the App id or its private key is not right{said}."
        " Check both in the settings; a new key file is read without a restart.",
    ),
    ErrorRule(
        kind=Kind.BAD_CREDENTIALS,
        when="any other 401, also with fresh credentials",
        test=lambda t: t.status == 401,
        backs_off=Side.ASKER,
        seconds=_MINUTE,
        ceiling=10 * _MINUTE,
        sentence="GitHub refused to {where}: it does not accept the credentials{said}. Check that"
        " the App is still installed and its private key still valid.",
    ),
    ErrorRule(
        kind=Kind.RUNNER_BUSY,
        when="422 to a deletion: whatever it says, the runner is left alone",
        test=lambda t: t.operation is Operation.DELETE_RUNNER and t.status == 422,
        backs_off=BackOff.NONE,
        seconds=0.0,
        ceiling=0.0,
        sentence="GitHub refused to {where}: it is executing a job{said}.",
    ),
    ErrorRule(
        kind=Kind.NAME_EXISTS,
        when="409 to a mint",
        test=lambda t: t.operation is Operation.MINT and t.status == 409,
        backs_off=BackOff.NONE,
        seconds=0.0,
        ceiling=0.0,
        sentence="GitHub refused to {where}: a runner of that name exists.",
    ),
    ErrorRule(
        kind=Kind.INVALID_REQUEST,
        when="400, 409, 415 or 422",
        test=lambda t: t.status in (400, 409, 415, 422),
        backs_off=Side.THING,
        seconds=5 * _MINUTE,
        ceiling=_HOUR,
        sentence="GitHub refused to {where}: it calls the request invalid{said}. Check the pool's"
        " labels and runner group.",
    ),
    ErrorRule(
        kind=Kind.MOVED,
        when="a redirect: the repository or account was renamed or transferred",
        test=lambda t: t.status is not None and 300 <= t.status < 400,
        backs_off=Side.SCOPE,
        seconds=_MINUTE,
        ceiling=10 * _MINUTE,
        sentence="GitHub did not {where}: the repository or account has another name now. Its new"
        " name is taken over with its next webhook.",
    ),
    ErrorRule(
        kind=Kind.NOT_FOUND_PROVEN,
        when="404, while the same token could read the same scope",
        test=lambda t: t.status == 404 and t.proven,
        backs_off=Side.THING,
        seconds=5 * _MINUTE,
        ceiling=_HOUR,
        sentence="GitHub could not {where}: it does not exist.",
    ),
    ErrorRule(
        kind=Kind.NOT_FOUND,
        when="404, and nothing shows that the token can read the scope at all",
        test=lambda t: t.status == 404,
        backs_off=Side.SCOPE,
        seconds=_MINUTE,
        ceiling=10 * _MINUTE,
        sentence="GitHub could not {where}: it says not found, which may also mean that the App may"
        " not see it. Check the App's permissions, the runner group and the installation.",
    ),
    ErrorRule(
        kind=Kind.NOT_ACCESSIBLE,
        when="any other 403",
        test=lambda t: t.status == 403,
        backs_off=Side.SCOPE,
        seconds=10 * _MINUTE,
        ceiling=_HOUR,
        sentence="GitHub refused to {where}{said}. Check the App's permissions and installation.",
    ),
    ErrorRule(
        kind=Kind.SERVER_ERROR,
        when="5xx or 408",
        test=lambda t: t.status is not None and (t.status >= 500 or t.status == 408),
        backs_off=Side.SCOPE,
        seconds=5.0,
        ceiling=5 * _MINUTE,
        retryable=True,
        sentence="GitHub failed to {where} (status {status}){said}. If this goes on, look at"
        " GitHub's status page.",
    ),
    ErrorRule(
        kind=Kind.MALFORMED,
        when="an answer that cannot be understood: not what is documented, too large, without end",
        test=lambda t: t.malformed,
        backs_off=Side.THING,
        seconds=_MINUTE,
        ceiling=10 * _MINUTE,
        sentence="GitHub's answer to the request to {where} could not be understood{said}. If a"
        " proxy stands between, check that it passes answers on unchanged.",
    ),
    ErrorRule(
        kind=Kind.UNKNOWN,
        when="anything else",
        test=lambda _: True,
        backs_off=Side.SCOPE,
        seconds=_MINUTE,
        ceiling=10 * _MINUTE,
        sentence="GitHub did not {where} (status {status}){said}.",
    ),
)

#: Where GitHub, or a proxy before it, may say how long to wait.
_TOLD = frozenset({Kind.PRIMARY_LIMIT, Kind.SECONDARY_LIMIT, Kind.SERVER_ERROR, Kind.UNKNOWN})
_LIMITS = frozenset({Kind.PRIMARY_LIMIT, Kind.SECONDARY_LIMIT})


def classify(trouble: Trouble, now: datetime) -> Failure:
    """Read one refusal. `now` counts only where GitHub's own Date header is missing."""
    rule = next(rule for rule in RULES if rule.test(trouble))
    told = told_wait(trouble, now, limits=rule.kind in _LIMITS) if rule.kind in _TOLD else None
    backoff = rule.seconds if told is None else told
    # The quota is renewed when GitHub says so, however often it was used up before.
    is_exact = rule.kind is Kind.PRIMARY_LIMIT and told is not None
    return Failure(
        kind=rule.kind,
        backs_off=_who(rule.backs_off, trouble),
        backoff_s=backoff,
        ceiling_s=backoff if is_exact else max(rule.ceiling, backoff),
        retryable=rule.retryable and trouble.operation.repeatable,
        sentence=rule.sentence.format(
            where=trouble.where, said=_said(trouble.message), status=trouble.status
        ),
    )


def key_unreadable(where: str, why: str) -> Failure:
    return Failure(
        kind=Kind.KEY_UNREADABLE,
        backs_off=BackOff.APP,
        backoff_s=30.0,
        ceiling_s=5 * _MINUTE,
        retryable=False,
        sentence=f"Could not {where}: {why}. The file is read again at the next attempt.",
    )


def not_configured(where: str, app: AppKey) -> Failure:
    return Failure(
        kind=Kind.NOT_CONFIGURED,
        backs_off=BackOff.APP,
        backoff_s=_MINUTE,
        ceiling_s=_HOUR,
        retryable=False,
        sentence=f"Could not {where}: {app} is not configured. Add it to [[github.apps]], or"
        " uninstall it at GitHub.",
    )


def budget_spent(where: str, *, backs_off: BackOff, seconds: float) -> Failure:
    return Failure(
        kind=Kind.BUDGET_SPENT,
        backs_off=backs_off,
        backoff_s=seconds,
        ceiling_s=seconds,
        retryable=False,
        sentence=f"Did not {where}: the budget for GitHub is spent for {seconds:.0f} s. Nothing"
        " needs to be done; if it happens often, raise it in the settings or add another App.",
    )


def told_wait(trouble: Trouble, now: datetime, *, limits: bool) -> float | None:
    """The seconds GitHub tells us to wait, within sane bounds, or `None` if it tells nothing."""
    waits = [_number(trouble.headers.get("retry-after"))]
    if limits and _remaining(trouble) == "0":
        waits.append(resets_in(trouble.headers, now))
    told = [wait for wait in waits if wait is not None]
    return min(max(*told, SHORTEST_TOLD_S), LONGEST_TOLD_S) if told else None


def resets_in(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds until the rate window ends, by GitHub's clock: ours may be wrong."""
    reset = _number(headers.get("x-ratelimit-reset"))
    if reset is None:
        return None
    with contextlib.suppress(KeyError, ValueError):
        now = parsedate_to_datetime(headers["date"]).astimezone(UTC)
    return min(max(reset - now.timestamp(), 0.0), LONGEST_TOLD_S)


def message_of(body: bytes) -> str:
    """All that an error body says. GitHub puts some reasons into `errors` only, next to a message
    that says no more than "Forbidden" (runs-on#417)."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    if not isinstance(said, dict):
        return ""
    parts = [said.get("message"), *_errors(said.get("errors"))]
    return "; ".join(dict.fromkeys(part for part in parts if isinstance(part, str) and part))


def rules_table() -> list[tuple[str, str, str, str, str]]:
    """The table for people: what is seen, what it is called, who backs off, how long, repeated."""
    return [
        (
            rule.when,
            rule.kind,
            rule.backs_off,
            f"{rule.seconds:.0f}–{rule.ceiling:.0f} s" if rule.seconds else "–",
            "yes" if rule.retryable else "no",
        )
        for rule in RULES
    ]


def _who(side: BackOff | Side, trouble: Trouble) -> BackOff:
    match side:
        case Side.THING:
            return BackOff.JOB if trouble.operation is Operation.GET_JOB else trouble.at
        case Side.SCOPE:
            return trouble.at
        case Side.ASKER:
            return BackOff.APP if trouble.operation.as_app else BackOff.ACCOUNT
        case _:
            return side


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r"\d{1,12}", text) else None


def _errors(errors: Any) -> list[Any]:
    if not isinstance(errors, list):
        return [errors]
    return [error.get("message") if isinstance(error, dict) else error for error in errors]


# GitHub's tokens and JWTs, should a proxy echo a request into its error page.
_SECRET = re.compile(r"gh[a-z]_\w{10,}|github_pat_\w+|eyJ[\w-]+\.[\w-]+(?:\.[\w-]+)?")


def _said(message: str) -> str:
    """GitHub's message for the end of a sentence: one line, no secrets, limited length."""
    message = _SECRET.sub("[hidden]", " ".join(message.split())).rstrip(".")
    if len(message) > _SAID_MAX:
        message = message[: _SAID_MAX - 1] + "…"
    return f' ("{message}")' if message else ""
