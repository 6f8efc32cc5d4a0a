"""The sidecar: carries samples and marks out of the Pod while it lives.

A guest that dies with its console unflushed leaves an empty log; what it measured a few seconds before
is then all there is. It runs beside the job and outlives its mistakes: the server's outage, files that
are not what they should be. Nothing here can hold up the runner or change how it ends.
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
from paddock.agent.client import Answer, Lost, NoToken, Server, Unreachable
from paddock.agent.exits import Exit
from paddock.agent.log import log
from paddock.agent.options import Options, UsageError
from paddock.agent.samples import Marks, Sample, Samples

#: What the server takes at once: five minutes of samples.
_MOST_PER_REPORT: Final = 64
#: The server takes one report a second; a little more, since it is its clock that counts.
_GAP: Final = 1.1
#: An hour of samples: as much as an outage of the server may last without a gap.
_MOST_PENDING: Final = 720
_REPORT_SECONDS: Final = 5.0
#: The kubelet waits for us, and the Pod's end with it.
_LAST_SECONDS: Final = 1.8


def vitals(options: Options) -> int:
    nap = Nap()
    try:
        server = Server(options.server, token_file=options.token_file, ca_file=options.ca_file)
    except OSError as error:
        raise UsageError(f"--ca-file cannot be used: {error}.") from None
    reporter = Reporter(server, Samples(options.stage), options.hurry)
    log("watching")
    while not reporter.ended and not nap.told:
        reporter.report()
        nap.sleep(options.every / options.hurry)
    reporter.last_report(time.monotonic() + _LAST_SECONDS)
    # A sidecar that ends before it is told to is started again; the kubelet tells it within moments.
    nap.sleep(_LAST_SECONDS / options.hurry)
    log("done")
    return Exit.STAGED


class Nap:
    """Sleep that SIGTERM ends. A plain `time.sleep` goes on when the handler returns."""

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
    def __init__(self, server: Server, samples: Samples, hurry: float) -> None:
        self._server = server
        self._samples = samples
        self._backoff = Backoff(hurry=hurry)
        self._pending: deque[Sample] = deque(maxlen=_MOST_PENDING)
        self._gap = _GAP / hurry
        self._sent_at = -self._gap
        self._not_before = 0.0
        self._unwanted = False
        self._marks = Marks()
        self._reported: float | None = None

    @property
    def ended(self) -> bool:
        return self._marks.ended

    def report(self) -> None:
        """One report at most, if there is news and it is time."""
        self._look()
        due = max(self._not_before, self._sent_at + self._gap)
        if self._has_news() and time.monotonic() >= due:
            self._send(_REPORT_SECONDS)

    def last_report(self, deadline: float) -> None:
        """One more, of the last moments: they tell more than whatever else could not be sent."""
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
        except (NoToken, Unreachable, Lost) as error:
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

    def _refused(self, answer: Answer, batch: list[Sample]) -> None:
        """What the server does not want, it will not want later either; unless it is unwell."""
        if answer.status >= 500:
            self._keep(batch)
        self._failed(f"the server answered {answer.status}", answer.retry_after)

    def _keep(self, batch: list[Sample]) -> None:
        """The oldest go when there is no room: the last moments tell more."""
        room = _MOST_PENDING - len(self._pending)
        self._pending.extendleft(reversed(batch[-room:] if room else []))

    def _failed(self, why: str, asked_for: float | None = None) -> None:
        delay = self._backoff.next(asked_for)
        self._not_before = time.monotonic() + delay
        if self._backoff.notable:
            log("failed", why=why, failures=self._backoff.failures, again_in=round(delay, 2))
