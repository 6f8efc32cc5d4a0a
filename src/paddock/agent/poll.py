"""The poller: asks for work until there is some, stages it, acknowledges it, and ends.

A lost reply costs one round trip, because the server repeats the same JIT until the poller acknowledges
it (I20). A poller that was told to leave or to stop leaves nothing from which a runner could start
(I24). The poller outlives any outage of the server: a Pod that gave up would be replaced by one that
finds the same outage.
"""

from __future__ import annotations

import json
import signal
import time
from typing import Final, NamedTuple, NoReturn

from paddock.agent.backoff import Backoff, jitter
from paddock.agent.client import NoToken, Response, ResponseLost, Server, Unreachable
from paddock.agent.log import log
from paddock.agent.options import SIGNALLED, AgentExit, Options, UsageError
from paddock.agent.stage import Stage

#: Added to the time for which the server may hold a request.
_ANSWER_SECONDS: Final = 15.0
#: About a minute of refusals. The kubelet replaces a token when a fifth of its life is left, so a token
#: that is refused for longer stays refused. A failed Pod is seen; a waiting one is not.
_MOST_REFUSALS: Final = 10
#: A stopping server answers its polls early. A server that always does so must not be asked a thousand
#: times per second.
_EARLY_SECONDS: Final = 1.0
_MOST_EARLY: Final = 3
#: The runner waits for this. Giving up is harmless: GitHub's in_progress acknowledges too.
_ACK_SECONDS: Final = 3.0
_ACK_PAUSE: Final = 0.1

#: GitHub's own limit for a runner's name.
_MOST_NAME: Final = 64
#: Below the kernel's limit for one string in an environment.
_MOST_JIT: Final = 120_000


class Work(NamedTuple):
    delivery: str
    runner_name: str
    jit: str


class StopSignal(BaseException):
    """A signal told the poller to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class TokenRefused(Exception):
    """The server does not accept our token."""


class PodNotNeeded(Exception):
    """The server says that this Pod is not needed."""


def poll(options: Options) -> int:
    # Before all else: the kernel drops a signal for which a container's first process has no handler.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    stage = Stage(options.stage, uid=options.runner_uid, gid=options.runner_gid)
    try:
        stage.prepare()
        server = _server(options)
        work = Poller(server, options).work()
        stage.put(jit=work.jit, runner_name=work.runner_name)
        log("staged", runner=work.runner_name, delivery=work.delivery)
        _acknowledge(server, work, options.speedup)
    except TokenRefused as error:
        log("gave up", why=str(error))
        return AgentExit.TOKEN_REFUSED
    except PodNotNeeded as error:
        _unstage(stage)
        log("left", why=str(error))
        return AgentExit.LEFT
    except OSError as error:
        log("cannot stage", stage=options.stage, why=str(error))
        return AgentExit.CANNOT_STAGE
    except StopSignal as told:
        _unstage(stage)
        log("told to stop", signal=told.number)
        return SIGNALLED + told.number
    return AgentExit.STAGED


def _server(options: Options) -> Server:
    try:
        return Server(options.server, token_file=options.token_file, ca_file=options.ca_file)
    except OSError as error:
        raise UsageError(f"--ca-file cannot be used: {error}.") from None


def _unstage(stage: Stage) -> None:
    try:
        stage.clear()
    except OSError as error:
        log(
            "cannot clear the stage", why=str(error)
        )  # the exit code keeps the runner from starting


def _stop(number: int, _frame: object) -> NoReturn:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    raise StopSignal(number)


class Poller:
    def __init__(self, server: Server, options: Options) -> None:
        self._server = server
        self._wait = options.wait
        self._speedup = options.speedup
        self._backoff = Backoff(speedup=options.speedup)
        self._refusals = 0
        self._early = 0

    def work(self) -> Work:
        """Raises Refused or Leave."""
        log("polling")
        while True:
            asked_at = time.monotonic()
            # Jitter: Pods that were disconnected together must not keep polling at the same moment.
            wait = self._wait * (0.5 + jitter() / 2)
            path = f"/v1/dispatch?wait={max(1, round(wait))}"
            try:
                answer = self._server.post(path, patience=wait + _ANSWER_SECONDS / self._speedup)
            except NoToken as error:
                self._refused(str(error))
            except Unreachable as error:
                self._failed(str(error))
            except ResponseLost as error:
                self._lost(str(error))
            else:
                took = time.monotonic() - asked_at
                if work := self._answered(answer, is_early=took < min(_EARLY_SECONDS, wait / 2)):
                    return work

    def _answered(self, answer: Response, *, is_early: bool) -> Work | None:
        if answer.status not in (401, 403):
            self._refusals = 0
        match answer.status:
            case 200:
                if work := _work(answer.body):
                    return work
                self._failed("the answer holds no work that can be understood")
            case 204:
                self._nothing_yet(is_early=is_early)
            case 410:
                raise PodNotNeeded(_reason(answer.body))
            case 401 | 403:
                self._refused(f"the server answered {answer.status}: {_reason(answer.body)}")
            case status:
                self._failed(f"the server answered {status}", answer.retry_after)
        return None

    def _nothing_yet(self, *, is_early: bool) -> None:
        if self._backoff.failures:
            log("answered again", failures=self._backoff.failures)
        self._early = self._early + 1 if is_early else 0
        self._backoff.reset()
        if self._early > _MOST_EARLY:
            time.sleep(_EARLY_SECONDS * jitter() / self._speedup)

    def _lost(self, why: str) -> None:
        """The lost answer may have held work, so ask again at once; but only once."""
        if self._backoff.failures:
            self._failed(why)
        else:
            self._backoff.next()
            log("lost an answer", why=why)

    def _refused(self, why: str) -> None:
        self._refusals += 1
        if self._refusals >= _MOST_REFUSALS:
            raise TokenRefused(why)
        self._failed(why)

    def _failed(self, why: str, asked_for: float | None = None) -> None:
        delay = self._backoff.next(asked_for)
        if self._backoff.notable:
            log("failed", why=why, failures=self._backoff.failures, again_in=round(delay, 2))
        time.sleep(delay)


def _acknowledge(server: Server, work: Work, speedup: float) -> None:
    """Raises Leave if the server says that this JIT is not, or no longer, for this Pod. The runner has
    not started with it yet, and must not (I20)."""
    body = json.dumps({"delivery": work.delivery}).encode()
    deadline = time.monotonic() + _ACK_SECONDS
    pause = _ACK_PAUSE / speedup
    why = ""
    while (left := deadline - time.monotonic()) > 0:
        try:
            answer = server.post("/v1/dispatch/ack", body, patience=left)
            if answer.status in (409, 410):
                raise PodNotNeeded(_reason(answer.body))
            if answer.status < 500:
                log("acknowledged", answer=answer.status)
                return
            why = f"the server answered {answer.status}"
        except (NoToken, Unreachable, ResponseLost) as error:
            why = str(error)
        time.sleep(min(pause * jitter(), max(0.0, deadline - time.monotonic())))
        pause *= 2
    log("not acknowledged", why=why)


def _work(body: bytes) -> Work | None:
    try:
        found = json.loads(body)
        words = [found[name] for name in Work._fields]
    except (ValueError, KeyError, TypeError):
        return None
    # Only printable text: `run.sh` reads the JIT as a line and puts it into an environment variable.
    if not all(isinstance(word, str) and word.isprintable() and word for word in words):
        return None
    work = Work(*words)
    return work if len(work.jit) <= _MOST_JIT and len(work.runner_name) <= _MOST_NAME else None


def _reason(body: bytes) -> str:
    try:
        said = json.loads(body)
        reason = said.get("reason") or said.get("error")
    except (ValueError, AttributeError):
        reason = None
    return reason[:200] if isinstance(reason, str) else "no reason given"
