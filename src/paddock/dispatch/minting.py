"""From a claim to an armed runner: one JIT, minted under the claim's name.

The matcher wrote the name with the claim, before GitHub is asked. So a record that the request may have
made can be found by its name even if the outcome is unknown (I41). A mint is sent once. If it fails,
the claim is released, guarded by its generation, the scope of the failure backs off, and the Pod can
take other work (I17).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog
from prometheus_client import Counter, Histogram

from paddock.dispatch.sealing import Sealer
from paddock.domain.github.backoffs import subject_of, subjects_of, terms_of
from paddock.domain.github.errors import Failure, GitHubError, Kind
from paddock.domain.github.objects import (
    ConflictAction,
    GitHubAppId,
    GitHubHost,
    InstallationId,
    InstallationKey,
    MintedJit,
    RunnerGroupId,
    Scope,
    repository_scope,
)
from paddock.domain.ids import AppId
from paddock.domain.runners.handover import Handover
from paddock.domain.runners.jit import without_self_update
from paddock.domain.runners.runner import Claim, Conflict
from paddock.log_events import claim_fields
from paddock.ports import Clock, GitHub, Ids
from paddock.ports.errors import DatabaseUnavailable, OutcomeUnknown
from paddock.ports.matching import MintStore

_log = structlog.get_logger()

#: GitHub allows an App at most 100 concurrent requests of all kinds. Each App has its own places: a
#: host that does not answer delays no mint at another (I26).
AT_ONCE: Final = 50
#: How often the outcome of a mint is written again while the store is away.
_TRY_AGAIN: Final = 0.5

MINTED: Final = "minted"
TOO_LATE: Final = "too late"
MINTS = Counter("paddock_mints_total", "Mints, by what became of them.", ["outcome"])
MINT_SECONDS = Histogram("paddock_mint_seconds", "From claimed to armed.")


T = TypeVar("T")


class Minter:
    def __init__(
        self, *, store: MintStore, github: GitHub, sealer: Sealer, clock: Clock, ids: Ids
    ) -> None:
        self._store = store
        self._github = github
        self._sealer = sealer
        self._clock = clock
        self._ids = ids
        self._places: dict[AppId, asyncio.Semaphore] = {}
        self._troubled: set[tuple[str, int]] = set()

    async def mint(self, claim: Claim) -> Handover | None:
        """The JIT, stored for replay; `None` if the mint failed, or came too late for its claim."""
        began = self._clock.monotonic()
        async with self._places.setdefault(claim.app, asyncio.Semaphore(AT_ONCE)):
            try:
                minted = await self._ask(claim)
            except GitHubError as error:
                await self._give_up(claim, error.failure)
                return None
        handover = await self._arm(claim, minted)
        MINT_SECONDS.observe(self._clock.monotonic() - began)
        return handover

    async def _ask(self, claim: Claim) -> MintedJit:
        return await self._github.mint_jit(
            _installation(claim),
            _scope(claim),
            name=claim.name,
            runner_group_id=RunnerGroupId(claim.runner_group),
            labels=claim.labels,
        )

    async def _arm(self, claim: Claim, minted: MintedJit) -> Handover | None:
        delivery = self._ids.uuid()
        jit = without_self_update(minted.encoded_jit_config)
        sealed = self._sealer.seal(jit, runner=claim.runner, delivery=delivery)
        armed = await self._patiently(
            claim,
            lambda: self._store.arm_runner(
                claim.runner,
                generation=claim.generation,
                github_id=minted.runner.id,
                delivery=delivery,
                sealed_jit=sealed.sealed,
                sealing_key=sealed.key,
            ),
        )
        if isinstance(armed, Conflict):
            # The claim was taken over, or the runner fenced: this JIT is unused, and its record stays a
            # debt. Or the first of two attempts wrote the JIT: then the Pod gets it from the row.
            MINTS.labels(TOO_LATE).inc()
            _log.info("mint.too_late", **claim_fields(claim), found=str(armed))
            return None
        MINTS.labels(MINTED).inc()
        _log.info("mint.done", **claim_fields(claim))
        await self._end_backoffs(claim)
        return Handover(delivery=delivery, runner_name=claim.name, jit=jit)

    async def _give_up(self, claim: Claim, failure: Failure) -> None:
        MINTS.labels(failure.kind).inc()
        _log.warning(
            "mint.failed",
            **claim_fields(claim),
            kind=failure.kind,
            error=failure.sentence,
        )
        settled = None if failure.unsettled else failure.sentence
        if failure.kind is Kind.NAME_EXISTS:
            settled = await self._resolve(claim)
        subject = subject_of(failure, claim)
        if subject is not None:
            await self._store.back_off(subject, terms_of(failure))
            self._troubled.add((subject.scope, subject.id))
        released = await self._patiently(
            claim,
            lambda: self._store.release_runner(
                claim.runner,
                generation=claim.generation,
                why=failure.sentence,
                no_record_because=settled,
            ),
        )
        if not isinstance(released, Conflict):
            _log.info("claim.released", **claim_fields(claim), why=failure.sentence)

    async def _patiently(self, claim: Claim, write: Callable[[], Awaitable[T]]) -> T:
        """Repeat `write` while the database is away: after a failover it is mostly back before the
        claim's deadline. The generation makes a second write a `Conflict` (I16)."""
        while True:
            try:
                return await write()
            except (DatabaseUnavailable, OutcomeUnknown):
                if self._clock.now() >= claim.mint_deadline:
                    raise
                await self._clock.sleep(_TRY_AGAIN)

    async def _resolve(self, claim: Claim) -> str | None:
        """The name is taken: look once, decide, never try it again (I19). Returns why the name is
        settled, or `None` if a record of ours may exist: then the name stays a debt."""
        try:
            conflict = await self._github.resolve_name_conflict(
                _installation(claim), _scope(claim), name=claim.name
            )
        except GitHubError:
            return None
        return None if conflict.action is ConflictAction.DELETE_AND_RENAME else conflict.why

    async def _end_backoffs(self, claim: Claim) -> None:
        """End back-offs, but only of subjects that failed in this replica: a mint whose subjects never
        failed costs no write."""
        subjects = [
            subject
            for subject in subjects_of(claim)
            if (subject.scope, subject.id) in self._troubled
        ]
        if subjects:
            await self._store.recover_from_backoffs(subjects)
            self._troubled -= {(subject.scope, subject.id) for subject in subjects}


def _installation(claim: Claim) -> InstallationKey:
    return InstallationKey(
        host=GitHubHost(claim.host),
        app=GitHubAppId(claim.github_app),
        installation=InstallationId(claim.installation),
    )


def _scope(claim: Claim) -> Scope:
    """Under the repository's owner, on its host (I18)."""
    host = GitHubHost(claim.host)
    if claim.repository is not None:
        return repository_scope(host, claim.repository)
    return Scope(host=host, owner=claim.login)
