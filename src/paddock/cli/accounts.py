"""`paddock accounts`"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from paddock.cli.layout import prose
from paddock.cli.listing import Listing
from paddock.cli.operator_commands import (
    Why,
    as_operator,
    paused,
    tell_dispatch_pause,
    user,
    with_store,
)
from paddock.cli.options import AsJson, Config, DataDir
from paddock.cli.output import show, show_json, table
from paddock.domain.accounts import AccountSummary
from paddock.domain.limits import UNLIMITED, Limits
from paddock.domain.pauses import Pause
from paddock.domain.pods.quantities import mebibytes, milli
from paddock.operators import Operator
from paddock.store.store import PgStore

app = typer.Typer(
    help="The organisations and users that paddock works for, and what they may use.",
    cls=Listing,
    rich_markup_mode=None,
)

Login = Annotated[
    str, typer.Argument(metavar="LOGIN", help="As at GitHub; HOST/LOGIN where two hosts have it.")
]
NO_LIMIT = "none"


@app.command("list")
def list_(as_json: AsJson = False, config: Config = None, data_dir: DataDir = None) -> None:
    """List accounts with their use, limits and weights."""

    async def work(store: PgStore) -> tuple[Sequence[AccountSummary], Pause | None]:
        return await store.list_accounts(), await store.dispatch_pause()

    accounts, pause = with_store(work, config=config, data_dir=data_dir)
    tell_dispatch_pause(pause)
    if as_json:
        show_json(accounts)
        return
    table(
        [
            "ACCOUNT",
            "HOST",
            "INSTALLATION",
            "RUNNERS",
            "VCPU",
            "MEMORY",
            "QUEUED",
            "WEIGHT",
            prose("PAUSED"),
        ],
        (
            (
                account.login,
                account.host,
                account.installation,
                _of(account.used.runners, account.limits.runners),
                _of(account.used.vcpu_milli / 1000, _divided(account.limits.vcpu_milli, 1000), "g"),
                _of(account.used.memory_mib, account.limits.memory_mib, "d", " MiB"),
                account.queued,
                account.weight,
                paused(account),
            )
            for account in accounts
        ),
        empty="There are no accounts yet: install the GitHub App for an organisation, and "
        "`paddock serve` reads it.",
    )


@app.command()
def limits(
    login: Login,
    runners: Annotated[str | None, typer.Option(metavar="N|none", help="Runners at once.")] = None,
    vcpu: Annotated[
        str | None, typer.Option(metavar="CPUS|none", help="CPUs at once, like 64 or 500m.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE|none", help="Memory at once, like 256Gi.")
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME",
            help="For this repository alone; its runners then register at the repository.",
        ),
    ] = None,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """Change what an account may use at once.

    Limits that are not named stay; `none` removes a limit; 0 allows nothing. A limit below what is in
    use stops new runners and ends none.

    With --repository: while any repository of an organisation has limits, all runners for the
    organisation register at repositories. Runners that are registered at the organisation already can
    still take the repository's jobs; they count against its limit until they execute another job or
    are gone.

    Examples:

        paddock accounts limits acme --runners 20

        paddock accounts limits acme --repository acme/site --runners 5 --memory none
    """

    def changed(before: Limits) -> Limits:
        try:
            return Limits(
                runners=_new(before.runners, runners, int),
                vcpu_milli=_new(before.vcpu_milli, vcpu, milli),
                memory_mib=_new(before.memory_mib, memory, mebibytes),
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    async def work(store: PgStore) -> tuple[Limits, list[str]]:
        account, after = await Operator(store, actor=user()).set_limits(login, repository, changed)
        if repository is None:
            return after, []
        return after, [pool for _, pool in await store.pools_beside_limits(account.id)]

    after, inexact = with_store(work, config=config, data_dir=data_dir)
    show(f"{repository or login} may use {_described(after)}")
    for pool in inexact if after != UNLIMITED else ():
        show(
            f"not exact in pool {pool}: it names a runner group, so its runners register at the "
            "organisation and can take jobs of every repository of the group"
        )


@app.command()
def weight(
    login: Login,
    value: Annotated[int, typer.Argument(metavar="WEIGHT", min=1, max=1000)],
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """Change an account's share of scarce runners relative to other accounts (1 is usual)."""
    as_operator(
        lambda operator: operator.set_weight(login, value), config=config, data_dir=data_dir
    )
    show(f"{login} has weight {value}")


@app.command()
def pause(
    login: Login, why: Why = "paused by hand", config: Config = None, data_dir: DataDir = None
) -> None:
    """Give an account no new runners. Its present runners go on."""
    done = as_operator(
        lambda operator: operator.pause_account(login, why=why), config=config, data_dir=data_dir
    )
    show(f"{login} is paused" if done else f"{login} was paused already")


@app.command()
def resume(
    login: Login, why: Why = "resumed by hand", config: Config = None, data_dir: DataDir = None
) -> None:
    """Give a paused account runners again."""
    done = as_operator(
        lambda operator: operator.resume_account(login, why=why), config=config, data_dir=data_dir
    )
    show(f"{login} gets runners again" if done else f"{login} was not paused")


def _new(before: int | None, given: str | None, read: Callable[[str], int]) -> int | None:
    if given is None:
        return before
    if given.lower() == NO_LIMIT:
        return None
    value = read(given)
    if value < 0:
        raise ValueError(f"{given!r} is below zero")
    return value


def _divided(value: int | None, by: int) -> float | None:
    return None if value is None else value / by


def _of(used: float, limit: float | None, spec: str = "g", unit: str = "") -> str:
    return f"{used:{spec}}{unit}" if limit is None else f"{used:{spec}} of {limit:{spec}}{unit}"


def _described(limits: Limits) -> str:
    parts = [
        None if limits.runners is None else f"{limits.runners} runners",
        None if limits.vcpu_milli is None else f"{limits.vcpu_milli / 1000:g} CPUs",
        None if limits.memory_mib is None else f"{limits.memory_mib} MiB of memory",
    ]
    return ", ".join(part for part in parts if part) or "as much as there is"
