"""Webhooks: built, signed, sent (or lost, doubled, delayed), listed, and redelivered on request.

The model passes each webhook to `sink` when it is due. The transport is the sink's: the server posts
it, the simulator makes it an event of its own.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote_plus

import msgspec

from paddock.fakes.github import payloads
from paddock.fakes.github.payloads import Json
from paddock.fakes.github.records import App, Delivery, Installation, Job, Repository
from paddock.fakes.github.world import World

#: GitHub has no such limit, but a demonstration must not grow for ever.
_KEPT_DELIVERIES = 20_000


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One HTTP request that GitHub is about to make."""

    delivery_id: int
    url: str | None
    headers: dict[str, str]
    body: bytes


#: Sends one webhook; returns the status of the answer, or None if that follows later (`finished`).
Sink = Callable[[Outgoing], int | None]


class Hooks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._held: list[Outgoing] = []
        self.sink: Sink = self._hold

    def _hold(self, outgoing: Outgoing) -> int:
        self._held.append(outgoing)
        return 200

    def take(self) -> list[Outgoing]:
        """What was sent since the last call, if no sink is set. Each counts as answered with 200."""
        taken, self._held = self._held, []
        return taken

    def job(self, job: Job, action: str) -> None:
        for to in self._listeners(job.repository):
            self._emit(
                to.app,
                "workflow_job",
                payloads.workflow_job_event(self._world, job, action, to),
                installation=to,
                repository=job.repository,
                job_id=job.id,
            )

    def installation(
        self, of: Installation, action: str, repositories: Iterable[Repository] = ()
    ) -> None:
        payload = payloads.installation_event(self._world, of, action, repositories)
        self._emit(of.app, "installation", payload, installation=of)

    def installation_repositories(
        self,
        of: Installation,
        *,
        added: Iterable[Repository] = (),
        removed: Iterable[Repository] = (),
    ) -> None:
        added, removed = list(added), list(removed)
        payload = payloads.installation_repositories_event(
            self._world, of, "added" if added else "removed", added=added, removed=removed
        )
        self._emit(of.app, "installation_repositories", payload, installation=of)

    def installation_renamed(self, of: Installation, was: str) -> None:
        payload = payloads.installation_target_event(self._world, of, was)
        self._emit(of.app, "installation_target", payload, installation=of)

    def ping(self, app: App) -> None:
        self._emit(app, "ping", payloads.ping_event(self._world, app))

    def _listeners(self, repository: Repository) -> list[Installation]:
        return [
            one
            for one in self._world.installations.values()
            if not one.removed
            and one.suspended_at is None
            and one.covers(repository)
            and "workflow_job" in one.app.events
        ]

    def _emit(
        self,
        app: App,
        event: str,
        payload: Json,
        *,
        installation: Installation | None = None,
        repository: Repository | None = None,
        job_id: int = 0,
    ) -> None:
        world, faults = self._world, self._world.faults
        guid = world.ids.guid()
        if world.chance(faults.hook_lost, "hook_lost"):
            world.truth.unsent.append((event, payload.get("action"), job_id))
            return
        delivery = Delivery(
            id=world.ids.delivery(),
            guid=guid,
            app=app,
            event=event,
            action=payload.get("action"),
            installation_id=installation.id if installation else None,
            repository_id=repository.id if repository else None,
            payload=payload,
            redelivery=False,
            created_at=world.time,
        )
        self._dispatch(delivery)
        if world.chance(faults.hook_doubled, "hook_doubled"):
            self._dispatch(delivery)

    def _dispatch(self, delivery: Delivery) -> None:
        world, faults = self._world, self._world.faults
        world.deliveries[delivery.id] = delivery
        while len(world.deliveries) > _KEPT_DELIVERIES:
            del world.deliveries[next(iter(world.deliveries))]
        delay = world.draw(faults.hook_delay)
        if world.chance(faults.hook_held_back, "hook_held_back"):
            delay += world.draw(faults.hook_held_back_for)
        world.after(delay, lambda: self._send(delivery))

    def _send(self, delivery: Delivery) -> None:
        world = self._world
        outgoing = self._request(delivery)
        delivery.url = outgoing.url or ""
        delivery.request_headers = outgoing.headers
        if world.chance(world.faults.hook_failed, "hook_failed"):
            self.finished(delivery.id, 502)
            return
        status = self.sink(outgoing)
        if status is not None:
            self.finished(delivery.id, status)

    def _request(self, delivery: Delivery) -> Outgoing:
        app = delivery.app
        body = msgspec.json.encode(delivery.payload)
        if app.webhook_form:
            body = b"payload=" + quote_plus(body).encode()
        secret = app.webhook_secret.encode()
        headers = {
            "Accept": "*/*",
            "Content-Type": (
                "application/x-www-form-urlencoded" if app.webhook_form else "application/json"
            ),
            "User-Agent": "GitHub-Hookshot/fa1ce00",
            "X-GitHub-Delivery": delivery.guid,
            "X-GitHub-Event": delivery.event,
            "X-GitHub-Hook-ID": str(app.hook_id),
            "X-GitHub-Hook-Installation-Target-ID": str(app.id),
            "X-GitHub-Hook-Installation-Target-Type": "integration",
            "X-Hub-Signature": "sha1=" + hmac.new(secret, body, hashlib.sha1).hexdigest(),
            "X-Hub-Signature-256": "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest(),
        }
        return Outgoing(delivery.id, app.webhook_url, headers, body)

    def finished(
        self, delivery_id: int, status: int, *, duration: float = 0.0, answer: str | None = None
    ) -> None:
        """The outcome of the attempt. `status` 0: no answer within GitHub's ten seconds."""
        delivery = self._world.deliveries.get(delivery_id)
        if delivery is None:
            return
        delivery.status_code = status
        delivery.delivered_at = self._world.time
        delivery.duration = duration
        delivery.response_payload = answer
        if 200 <= status < 300:
            delivery.status = "OK"
        else:
            delivery.status = f"Invalid HTTP Response: {status}" if status else "timed out"

    def listed(self, app: App) -> list[Delivery]:
        """Newest first, as GitHub lists them."""
        oldest = self._world.time - timedelta(seconds=self._world.timing.deliveries_for)
        return [
            delivery
            for delivery in reversed(self._world.deliveries.values())
            if delivery.app is app
            and delivery.status_code is not None
            and delivery.created_at > oldest
        ]

    def redeliver(self, delivery: Delivery) -> None:
        again = Delivery(
            id=self._world.ids.delivery(),
            guid=delivery.guid,
            app=delivery.app,
            event=delivery.event,
            action=delivery.action,
            installation_id=delivery.installation_id,
            repository_id=delivery.repository_id,
            payload=delivery.payload,
            redelivery=True,
            created_at=self._world.time,
        )
        self._dispatch(again)
