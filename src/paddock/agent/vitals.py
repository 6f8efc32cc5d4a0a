"""The sidecar: sends samples and marks to the server while the Pod lives.

A virtual machine that dies with its console unflushed leaves an empty log; the samples of the last
seconds are then the only evidence. The sidecar survives outages of the server and malformed files.
Nothing here can delay the runner or change how it ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections import deque
from typing import Final

from paddock.agent.backoff import Backoff
from paddock.agent.client import NoToken, Response, ResponseLost, Server, Unreachable
from paddock.agent.log import log
from paddock.agent.options import AgentExit, Options, UsageError
from paddock.agent.samples import Marks, Sample, Samples

#: The most samples that the server accepts in a report: five minutes.
_MOST_PER_REPORT: Final = 64
#: The server accepts one report a second by its own clock, so this is a little more.
_GAP: Final = 1.1
#: An hour of samples: a server's outage of up to an hour leaves no gap.
_MOST_PENDING: Final = 720
_REPORT_SECONDS: Final = 5.0
#: The kubelet waits for the sidecar before the Pod ends.
_LAST_SECONDS: Final = 1.8


def vitals(options: Options) -> int:
    nap = Nap()
    try:
        server = Server(options.server, token_file=options.token_file, ca_file=options.ca_file)
    except OSError as error:
        raise UsageError(f"--ca-file cannot be used: {error}.") from None
    reporter = Reporter(server, Samples(options.stage), options.speedup)
    log("watching")
    while not reporter.ended and not nap.told:
        reporter.report()
        nap.sleep(options.every / options.speedup)
    reporter.last_report(time.monotonic() + _LAST_SECONDS)
    # The kubelet restarts a sidecar that ends too early; it sends SIGTERM within moments.
    nap.sleep(_LAST_SECONDS / options.speedup)
    log("done")
    return AgentExit.STAGED


class Nap:
    """Sleep that SIGTERM ends. A plain `time.sleep` goes on after the handler returns."""

    def __init__(self) -> None:
        self.told = False
        self._awake, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, _number: int, _frame: object) -> None:
        self.told = True

    def sleep(self, seconds: float) -> None:
        if not self.told:
            select.select([self._awake], [], [], seconds)


class Reporter:
    def __init__(self, server: Server, samples: Samples, speedup: float) -> None:
        self._server = server
        self._samples = samples
        self._backoff = Backoff(speedup=speedup)
        self._pending: deque[Sample] = deque(maxlen=_MOST_PENDING)
        self._gap = _GAP / speedup
        self._sent_at = -self._gap
        self._not_before = 0.0
        self._unwanted = False
        self._marks = Marks()
        self._reported: float | None = None

    @property
    def ended(self) -> bool:
        return self._marks.ended

    def report(self) -> None:
        """Send at most one report, if there is news and a report is due."""
        self._look()
        due = max(self._not_before, self._sent_at + self._gap)
        if self._has_news() and time.monotonic() >= due:
            self._send(_REPORT_SECONDS)

    def last_report(self, deadline: float) -> None:
        """Send one more report, with the latest samples: they matter more than older unsent ones."""
        self._look()
        if self._has_news():
            time.sleep(max(0.0, self._sent_at + self._gap - time.monotonic()))
            while len(self._pending) > _MOST_PER_REPORT:
                self._pending.popleft()
            self._send(deadline - time.monotonic())

    def _look(self) -> None:
        found = self._samples.new()
        if not self._unwanted:
            self._pending.extend(found)
        self._marks = self._samples.marks()

    def _has_news(self) -> bool:
        return not self._unwanted and (
            bool(self._pending) or self._marks.job_started_at != self._reported
        )

    def _send(self, patience: float) -> None:
        batch = [self._pending.popleft() for _ in range(min(len(self._pending), _MOST_PER_REPORT))]
        job_started_at = self._marks.job_started_at
        body = {"samples": batch, "job_started_at": job_started_at}
        self._sent_at = time.monotonic()
        try:
            answer = self._server.post("/v1/vitals", json.dumps(body).encode(), patience=patience)
        except (NoToken, Unreachable, ResponseLost) as error:
            self._keep(batch)
            self._failed(str(error))
            return
        if answer.status < 300:
            self._backoff.reset()
            self._reported = job_started_at
        elif answer.status == 410:
            log("not wanted any more")
            self._unwanted = True
            self._pending.clear()
        else:
            self._refused(answer, batch)

    def _refused(self, answer: Response, batch: list[Sample]) -> None:
        """Drop a batch that the server refused; keep it if the server failed (5xx)."""
        if answer.status >= 500:
            self._keep(batch)
        self._failed(f"the server answered {answer.status}", answer.retry_after)

    def _keep(self, batch: list[Sample]) -> None:
        """Keep the batch for later. Without room the oldest are dropped: the latest matter most."""
        room = _MOST_PENDING - len(self._pending)
        self._pending.extendleft(reversed(batch[-room:] if room else []))

    def _failed(self, why: str, asked_for: float | None = None) -> None:
        delay = self._backoff.next(asked_for)
        self._not_before = time.monotonic() + delay
        if self._backoff.notable:
            log("failed", why=why, failures=self._backoff.failures, again_in=round(delay, 2))
