"""Every refusal of GitHub, in its own words, and paddock's reaction."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.github.errors import (
    LONGEST_TOLD_S,
    RULES,
    BackOff,
    Failure,
    GitHubError,
    Kind,
    Trouble,
    budget_spent,
    classify,
    key_unreadable,
    message_of,
    rules_table,
)
from paddock.domain.github.objects import Operation

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
IN_TEN_MINUTES = str(int(NOW.timestamp()) + 600)

MINT, DELETE, JOB = Operation.MINT, Operation.DELETE_RUNNER, Operation.GET_JOB
RUNNER, TOKEN, APP = Operation.GET_RUNNER, Operation.TOKEN, Operation.LIST_INSTALLATIONS

SUSPENDED = "This installation has been suspended"
RUNNERS_DISABLED = "Repository level self-hosted runners are disabled on this repository."
ACTIONS_DISABLED = "GitHub Actions is disabled on this repository."
IP = (
    "Although you appear to have the correct authorization credentials, the `acme` organization has"
    " an IP allow list enabled, and your IP address is not permitted to access this resource."
)
MAXIMUM = "The maximum number of self-hosted runners has been reached"
FULL = "Invalid Argument - Runner group 1 has reached max limit of 10000 runners."
SECONDARY = (
    "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
)
ABUSE = "You have triggered an abuse detection mechanism. Please wait a few minutes."
PRIMARY = "API rate limit exceeded for installation ID 4711."
EXP = "'Expiration time' claim ('exp') is too far in the future"
IAT = (
    "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was"
    " issued"
)
JWT = "A JSON web token could not be decoded"
BUSY_OLD = 'Bad request - Runner "linux-x7k2m9qp4w-1" is still running a job"'
BUSY_NEW = "Runner linux-x7k2m9qp4w-1 is currently running a job and cannot be deleted."
NOT_ACCESSIBLE = "Resource not accessible by integration"
EXISTS = "Already exists - A runner with the name *** already exists."


@dataclass(frozen=True)
class Case:
    name: str
    operation: Operation
    status: int | None
    kind: Kind
    backs_off: BackOff
    seconds: float
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    at: BackOff = BackOff.ACCOUNT
    retryable: bool = False
    sent: bool = True
    malformed: bool = False
    proven: bool = False


REPOSITORY, ACCOUNT, THE_APP = BackOff.REPOSITORY, BackOff.ACCOUNT, BackOff.APP
SPENT = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": IN_TEN_MINUTES}

# fmt: off
CASES = [
    Case("suspended, asking for a token",
         TOKEN, 403, Kind.INSTALLATION_SUSPENDED, ACCOUNT, 600, SUSPENDED),
    Case("suspended, asking for a mint",
         MINT, 403, Kind.INSTALLATION_SUSPENDED, ACCOUNT, 600, SUSPENDED, at=REPOSITORY),
    Case("suspended, and by chance the last request of the hour",
         MINT, 403, Kind.INSTALLATION_SUSPENDED, ACCOUNT, 600, SUSPENDED, SPENT),
    Case("runners disabled",
         MINT, 403, Kind.RUNNERS_DISABLED, REPOSITORY, 600, RUNNERS_DISABLED, at=REPOSITORY),
    Case("Actions disabled for a repository",
         MINT, 403, Kind.ACTIONS_DISABLED, REPOSITORY, 600, ACTIONS_DISABLED, at=REPOSITORY),
    Case("IP not permitted", MINT, 403, Kind.IP_NOT_PERMITTED, ACCOUNT, 600, IP, at=REPOSITORY),
    Case("not accessible, an organisation",
         MINT, 403, Kind.NOT_ACCESSIBLE, ACCOUNT, 600, NOT_ACCESSIBLE),
    Case("not accessible, a repository",
         JOB, 403, Kind.NOT_ACCESSIBLE, REPOSITORY, 600, NOT_ACCESSIBLE, at=REPOSITORY),
    Case("403 without a known reason",
         MINT, 403, Kind.NOT_ACCESSIBLE, ACCOUNT, 600, "Must have admin rights to Repository."),
    Case("runner group full", MINT, 422, Kind.RUNNER_LIMIT, ACCOUNT, 300, FULL),
    Case("runner group full, a repository's",
         MINT, 422, Kind.RUNNER_LIMIT, REPOSITORY, 300, FULL, at=REPOSITORY),
    Case("maximum number of runners", MINT, 403, Kind.RUNNER_LIMIT, ACCOUNT, 300, MAXIMUM),
    Case("hourly quota, by its header",
         MINT, 403, Kind.PRIMARY_LIMIT, ACCOUNT, 600, PRIMARY, SPENT),
    Case("hourly quota, 429", RUNNER, 429, Kind.PRIMARY_LIMIT, ACCOUNT, 600, "", SPENT),
    Case("hourly quota, by its words alone", RUNNER, 403, Kind.PRIMARY_LIMIT, ACCOUNT, 60, PRIMARY),
    Case("hourly quota of the App itself",
         APP, 403, Kind.PRIMARY_LIMIT, THE_APP, 600, PRIMARY, SPENT, at=THE_APP),
    Case("hourly quota, retry-after is longer",
         RUNNER, 429, Kind.PRIMARY_LIMIT, ACCOUNT, 900, PRIMARY, SPENT | {"retry-after": "900"}),
    Case("secondary limit, with retry-after",
         MINT, 403, Kind.SECONDARY_LIMIT, ACCOUNT, 37, SECONDARY, {"retry-after": "37"}),
    Case("secondary limit, without", MINT, 403, Kind.SECONDARY_LIMIT, ACCOUNT, 60, SECONDARY),
    Case("secondary limit, quota spent too",
         MINT, 429, Kind.SECONDARY_LIMIT, ACCOUNT, 600, SECONDARY, SPENT),
    Case("secondary limit under its old name", MINT, 403, Kind.SECONDARY_LIMIT, ACCOUNT, 60, ABUSE),
    Case("429 without words", RUNNER, 429, Kind.SECONDARY_LIMIT, ACCOUNT, 60),
    Case("429 to the App itself", APP, 429, Kind.SECONDARY_LIMIT, THE_APP, 60, at=THE_APP),
    Case("403 that says when to come back",
         RUNNER, 403, Kind.SECONDARY_LIMIT, ACCOUNT, 5, "", {"retry-after": "5"}),
    Case("our clock is ahead", TOKEN, 401, Kind.CLOCK_SKEW, THE_APP, 60, EXP),
    Case("our clock is ahead, the other claim", TOKEN, 401, Kind.CLOCK_SKEW, THE_APP, 60, IAT),
    Case("wrong key", TOKEN, 401, Kind.WRONG_KEY, THE_APP, 60, JWT),
    Case("App without a key",
         APP, 401, Kind.WRONG_KEY, THE_APP, 60, "Integration must generate a public key", at=THE_APP),
    Case("wrong App id",
         APP, 404, Kind.WRONG_KEY, THE_APP, 60, "Integration not found", at=THE_APP),
    Case("bad credentials of an installation",
         RUNNER, 401, Kind.BAD_CREDENTIALS, ACCOUNT, 60, "Bad credentials"),
    Case("bad credentials of the App",
         APP, 401, Kind.BAD_CREDENTIALS, THE_APP, 60, "Bad credentials", at=THE_APP),
    Case("name exists", MINT, 409, Kind.NAME_EXISTS, BackOff.NONE, 0, EXISTS),
    Case("invalid",
         MINT, 422, Kind.INVALID_REQUEST, ACCOUNT, 300, "Validation Failed; labels is too long"),
    Case("invalid cursor",
         Operation.LIST_DELIVERIES, 400, Kind.INVALID_REQUEST, THE_APP, 300, at=THE_APP),
    Case("runner busy", DELETE, 422, Kind.RUNNER_BUSY, BackOff.NONE, 0, BUSY_OLD),
    Case("runner busy, in newer words", DELETE, 422, Kind.RUNNER_BUSY, BackOff.NONE, 0, BUSY_NEW),
    Case("422 to a deletion is always busy",
         DELETE, 422, Kind.RUNNER_BUSY, BackOff.NONE, 0, "Validation Failed"),
    Case("moved", JOB, 301, Kind.MOVED, REPOSITORY, 60, "Moved Permanently", at=REPOSITORY),
    Case("moved, a write",
         MINT, 307, Kind.MOVED, REPOSITORY, 60, "Moved Permanently", at=REPOSITORY),
    Case("not found, unproven", RUNNER, 404, Kind.NOT_FOUND, ACCOUNT, 60, "Not Found"),
    Case("not found, unproven, a job",
         JOB, 404, Kind.NOT_FOUND, REPOSITORY, 60, "Not Found", at=REPOSITORY),
    Case("mint into a group that is not there",
         MINT, 404, Kind.NOT_FOUND, ACCOUNT, 60, "Not Found"),
    Case("not found, proven", TOKEN, 404, Kind.NOT_FOUND_PROVEN, ACCOUNT, 300, proven=True),
    Case("not found, proven, a job",
         JOB, 404, Kind.NOT_FOUND_PROVEN, BackOff.JOB, 300, at=REPOSITORY, proven=True),
    Case("server error", RUNNER, 502, Kind.SERVER_ERROR, ACCOUNT, 5, retryable=True),
    Case("server error to a deletion", DELETE, 503, Kind.SERVER_ERROR, ACCOUNT, 5, retryable=True),
    Case("server error that says when",
         RUNNER, 503, Kind.SERVER_ERROR, ACCOUNT, 20, "", {"retry-after": "20"}, retryable=True),
    Case("server error to a mint", MINT, 502, Kind.OUTCOME_UNKNOWN, ACCOUNT, 5, "Server Error"),
    Case("time-out of a mint", MINT, None, Kind.OUTCOME_UNKNOWN, ACCOUNT, 5, "ReadTimeout"),
    Case("a minted JIT that cannot be read",
         MINT, 201, Kind.OUTCOME_UNKNOWN, ACCOUNT, 5, malformed=True),
    Case("time-out of a redelivery",
         Operation.REDELIVER, None, Kind.OUTCOME_UNKNOWN, THE_APP, 5, at=THE_APP),
    Case("a mint that never left",
         MINT, None, Kind.NO_ANSWER, THE_APP, 5, "ConnectError", sent=False),
    Case("time-out of a look-up",
         RUNNER, None, Kind.NO_ANSWER, ACCOUNT, 5, "ReadTimeout", retryable=True),
    Case("time-out of a deletion",
         DELETE, None, Kind.NO_ANSWER, ACCOUNT, 5, "ReadTimeout", retryable=True),
    Case("time-out of a token",
         TOKEN, None, Kind.NO_ANSWER, ACCOUNT, 5, "ReadTimeout", retryable=True),
    Case("a look-up that never left", RUNNER, None, Kind.NO_ANSWER, THE_APP, 5, "ConnectError",
         sent=False, retryable=True),
    Case("malformed", RUNNER, 200, Kind.MALFORMED, ACCOUNT, 60, malformed=True),
    Case("malformed, a job",
         JOB, 200, Kind.MALFORMED, BackOff.JOB, 60, at=REPOSITORY, malformed=True),
    Case("an unknown status", RUNNER, 418, Kind.UNKNOWN, ACCOUNT, 60, "I'm a teapot"),
]
# fmt: on


def read(case: Case) -> Failure:
    return classify(
        Trouble(
            operation=case.operation,
            at=case.at,
            where="do something at acme on github.com",
            status=case.status,
            message=case.message,
            headers=case.headers,
            sent=case.sent,
            malformed=case.malformed,
            proven=case.proven,
        ),
        NOW,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_refusal_has_a_class_a_scope_and_a_back_off(case: Case) -> None:
    """I17"""
    failure = read(case)
    assert (failure.kind, failure.backs_off, failure.backoff_s, failure.retryable) == (
        case.kind,
        case.backs_off,
        case.seconds,
        case.retryable,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_refusal_is_told_in_a_sentence_that_says_where(case: Case) -> None:
    sentence = read(case).sentence
    assert "do something at acme on github.com" in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_every_kind_is_reached() -> None:
    # These are not GitHub's answers.
    elsewhere = {Kind.BUDGET_SPENT, Kind.KEY_UNREADABLE, Kind.NOT_CONFIGURED}
    assert {case.kind for case in CASES} == set(Kind) - elsewhere


def test_every_row_of_the_table_is_reached() -> None:
    def row(case: Case) -> int:
        trouble = Trouble(
            operation=case.operation, at=case.at, where="", status=case.status,
            message=case.message, headers=case.headers, sent=case.sent,
            malformed=case.malformed, proven=case.proven,
        )  # fmt: skip
        return next(i for i, rule in enumerate(RULES) if rule.test(trouble))

    assert {row(case) for case in CASES} == set(range(len(RULES)))


def test_only_a_mint_or_redelivery_that_may_have_happened_is_unsettled() -> None:
    """I41"""
    unsettled = {case.operation for case in CASES if read(case).unsettled}
    assert unsettled == {Operation.MINT, Operation.REDELIVER}


@given(
    operation=st.sampled_from(Operation),
    at=st.sampled_from([BackOff.REPOSITORY, BackOff.ACCOUNT, BackOff.APP]),
    status=st.none() | st.integers(100, 599),
    message=st.text() | st.sampled_from([case.message for case in CASES]),
    headers=st.dictionaries(
        st.sampled_from(["retry-after", "x-ratelimit-remaining", "x-ratelimit-reset", "date"]),
        st.text() | st.integers(-(10**15), 10**15).map(str),
    ),
    sent=st.booleans(),
    malformed=st.booleans(),
)
def test_each_answer_has_a_class_and_a_bounded_back_off(
    operation: Operation,
    at: BackOff,
    status: int | None,
    message: str,
    headers: dict[str, str],
    sent: bool,
    malformed: bool,
) -> None:
    failure = classify(
        Trouble(
            operation=operation, at=at, where="ask", status=status, message=message,
            headers=headers, sent=sent, malformed=malformed,
        ),
        NOW,
    )  # fmt: skip
    assert 0 <= failure.backoff_s <= failure.ceiling_s <= LONGEST_TOLD_S
    assert not (failure.retryable and operation is Operation.MINT)


def test_the_reset_is_counted_on_githubs_clock_not_on_ours() -> None:
    """A clock that is an hour slow would make ten minutes seventy."""
    headers = SPENT | {"date": "Mon, 05 Jan 2026 09:00:00 GMT"}
    trouble = Trouble(
        operation=RUNNER, at=ACCOUNT, where="ask", status=403, message=PRIMARY, headers=headers
    )
    assert classify(trouble, NOW.replace(hour=8)).backoff_s == 600


@pytest.mark.parametrize("reset", ["99999999999", "1"])
def test_a_reset_far_off_or_long_past_is_bounded(reset: str) -> None:
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}
    trouble = Trouble(operation=RUNNER, at=ACCOUNT, where="ask", status=403, headers=headers)
    assert classify(trouble, NOW).backoff_s in (LONGEST_TOLD_S, 1)


def test_the_back_off_grows_while_the_same_failure_repeats() -> None:
    failure = read(next(case for case in CASES if case.kind is Kind.SERVER_ERROR))
    assert [failure.after(n) for n in (1, 2, 3)] == [5, 10, 20]
    assert failure.after(1_000_000) == failure.ceiling_s == 300


def test_a_quota_is_waited_for_until_it_is_renewed_and_no_longer() -> None:
    """I26"""
    spent = read(next(case for case in CASES if case.kind is Kind.PRIMARY_LIMIT))
    own = budget_spent("mint", backs_off=ACCOUNT, seconds=598)
    assert [spent.after(n, lasted=9000) for n in (1, 2, 5)] == [600] * 3
    assert [own.after(n, lasted=9000) for n in (1, 2, 5)] == [598] * 3


def test_a_back_off_is_at_most_twice_as_long_as_its_trouble() -> None:
    failure = read(next(case for case in CASES if case.kind is Kind.SERVER_ERROR))
    assert failure.after(5, lasted=0) == 5
    assert failure.after(5, lasted=20) == 40
    assert failure.after(5, lasted=1000) == 80


def test_a_reason_that_stands_only_beside_the_message_is_read() -> None:
    """runs-on#417: the message says "Forbidden", the reason is in `errors`."""
    body = {"message": "Forbidden", "errors": "Repository level self-hosted runners are disabled"}
    assert message_of(json.dumps(body).encode()) == (
        "Forbidden; Repository level self-hosted runners are disabled"
    )


def test_all_errors_of_a_validation_are_read() -> None:
    body = {"message": "Validation Failed", "errors": [{"message": "no labels"}, "name", {"a": 1}]}
    assert message_of(json.dumps(body).encode()) == "Validation Failed; no labels; name"


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>Unicorn!</html>", b"[]", b'"x"', b"\xff\xfe", b"{" * 10_000, b"[" * 10_000],
)
def test_a_body_that_is_no_error_of_githubs_says_nothing(body: bytes) -> None:
    assert message_of(body) == ""


@pytest.mark.parametrize(
    "secret",
    ["ghs_16C7e42F292c6912E7710c838347Ae178B4a", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiIxIn0.c2lnbmVk"],
)
def test_a_secret_echoed_in_an_error_is_not_repeated(secret: str) -> None:
    trouble = Trouble(
        operation=RUNNER,
        at=ACCOUNT,
        where="ask",
        status=500,
        message=f"proxy could not forward Authorization: Bearer {secret}",
    )
    assert secret not in str(GitHubError(classify(trouble, NOW)))


def test_githubs_words_are_kept_to_one_short_line() -> None:
    trouble = Trouble(
        operation=RUNNER, at=ACCOUNT, where="ask", status=418, message="so\nmuch\n" * 1000
    )
    sentence = classify(trouble, NOW).sentence
    assert "\n" not in sentence
    assert len(sentence) < 500


def test_the_table_can_be_printed() -> None:
    rows = rules_table()
    assert len(rows) == len(RULES)
    assert all(cell for row in rows for cell in row)


def test_a_failure_of_our_own_has_a_sentence_and_a_scope_too() -> None:
    assert key_unreadable("sign as App 1", "the file is empty").backs_off is BackOff.APP
    failure = budget_spent("show job 1", backs_off=BackOff.ACCOUNT, seconds=12)
    assert (failure.kind, failure.backoff_s) == (Kind.BUDGET_SPENT, 12)
