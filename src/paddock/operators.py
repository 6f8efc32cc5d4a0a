"""Actions of operators, from the command line or the dashboard.

Both use this module, so that every action is logged. Stored events and the reason of a pause name the
same actor as the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from paddock.domain.accounts import AccountSummary
from paddock.domain.github.deliveries import DeliveryNumber
from paddock.domain.ids import PoolId
from paddock.domain.limits import Limits
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.runners.runner import Runner
from paddock.log_events import runner_fields
from paddock.ports.operators import OperatorStore
from paddock.recovery.by_hand import retire_by_hand

_log = structlog.get_logger()


class UnknownName(Exception):
    """The name that an operator gave does not exist. The message is a sentence for the operator."""


def log_action(
    actor: str,
    action: str,
    subject: str | None,
    *,
    why: str | None = None,
    done: bool = True,
    account: str | None = None,
    pool: str | None = None,
    change: object = None,
) -> None:
    """`subject`: the object of the action; `None` is all of paddock. `done`: false if the action
    changed nothing."""
    _log.info(
        "operator.acted",
        actor=actor,
        action=action,
        subject=subject,
        why=why,
        done=done,
        account=account,
        pool=pool,
        change=change,
    )


class Operator:
    """Each method returns whether something changed, unless it says otherwise."""

    def __init__(self, store: OperatorStore, *, actor: str) -> None:
        self._store = store.acting_as(actor)
        self._actor = actor

    async def retire_runner(self, name: str, *, why: str, force: bool = False) -> Runner | None:
        """`None`: the runner is being retired already."""
        runner = await retire_by_hand(self._store, name, why=why, force=force)
        action = "force-retire-runner" if force else "retire-runner"
        if runner is None:
            log_action(self._actor, action, name, why=why, done=False)
        else:
            _log.info(
                "operator.acted",
                actor=self._actor,
                action=action,
                subject=name,
                why=why,
                done=True,
                **runner_fields(runner),
            )
        return runner

    async def apply_pools(self, pools: Sequence[PoolFacts]) -> None:
        await self._store.apply_pools(pools)
        for pool in pools:
            log_action(self._actor, "apply-pool", pool.name, pool=pool.name)

    async def pause_pool(self, name: str, *, why: str) -> bool:
        done = await self._store.pause_pool(await self.find_pool(name), why=why)
        log_action(self._actor, "pause-pool", name, why=why, done=done, pool=name)
        return done

    async def resume_pool(self, name: str, *, why: str) -> bool:
        done = await self._store.resume_pool(await self.find_pool(name), why=why)
        log_action(self._actor, "resume-pool", name, why=why, done=done, pool=name)
        return done

    async def delete_pool(self, name: str, *, why: str) -> bool:
        done = await self._store.delete_pool(await self.find_pool(name), why=why)
        log_action(self._actor, "delete-pool", name, why=why, done=done, pool=name)
        return done

    async def pause_account(self, name: str, *, why: str) -> bool:
        account = await self._find_account(name)
        done = await self._store.pause_account(account.id, why=why)
        log_action(self._actor, "pause-account", name, why=why, done=done, account=account.login)
        return done

    async def resume_account(self, name: str, *, why: str) -> bool:
        account = await self._find_account(name)
        done = await self._store.resume_account(account.id, why=why)
        log_action(self._actor, "resume-account", name, why=why, done=done, account=account.login)
        return done

    async def set_weight(self, name: str, weight: int) -> None:
        account = await self._find_account(name)
        await self._store.set_weight(account.id, weight)
        log_action(self._actor, "set-weight", name, account=account.login, change=weight)

    async def set_limits(
        self, name: str, repository: str | None, change: Callable[[Limits], Limits]
    ) -> tuple[AccountSummary, Limits]:
        """Set limits of the account, or of one of its repositories. Returns the account and the limits
        that now apply."""
        account = await self._find_account(name)
        if repository is None:
            after = change(account.limits)
            await self._store.set_account_limits(account.id, after)
        else:
            found = await self._store.find_repository(account.id, repository)
            if found is None:
                raise UnknownName(
                    f"{name} has no repository {repository} that paddock has seen: check the name; a "
                    "repository is known from its first job on."
                )
            after = change(found[1])
            await self._store.set_repository_limits(found[0], after)
        log_action(
            self._actor,
            "set-limits",
            repository or name,
            account=account.login,
            change={
                "runners": after.runners,
                "vcpu_milli": after.vcpu_milli,
                "memory_mib": after.memory_mib,
            },
        )
        return account, after

    async def pause_dispatch(self, *, why: str) -> bool:
        done = await self._store.pause_dispatch(why=why)
        log_action(self._actor, "pause-dispatch", None, why=why, done=done)
        return done

    async def resume_dispatch(self, *, why: str) -> bool:
        done = await self._store.resume_dispatch(why=why)
        log_action(self._actor, "resume-dispatch", None, why=why, done=done)
        return done

    async def retry_deliveries(self, numbers: Sequence[DeliveryNumber] | None) -> int:
        """Retry dead deliveries; `None`: all of them. Returns how many."""
        count = await self._store.retry_deliveries(numbers)
        subject = "all" if numbers is None else ", ".join(map(str, numbers))
        log_action(self._actor, "retry-deliveries", subject, done=count > 0, change=count)
        return count

    async def find_pool(self, name: str) -> PoolId:
        found = await self._store.find_pool(name)
        if found is None:
            raise UnknownName(f"There is no pool {name}: see `paddock pools list`.")
        return found

    async def _find_account(self, name: str) -> AccountSummary:
        """A login that exists on two hosts must be given as HOST/LOGIN (I71)."""
        host, _, login = name.rpartition("/")
        found = [
            account
            for account in await self._store.list_accounts()
            if account.login.lower() == login.lower() and host in ("", account.host)
        ]
        if not found:
            raise UnknownName(f"There is no account {name}: see `paddock accounts list`.")
        if len(found) > 1:
            named = " or ".join(f"{account.host}/{account.login}" for account in found)
            raise UnknownName(f"{name} is an account on several hosts: say {named}.")
        return found[0]
