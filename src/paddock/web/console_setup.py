"""Opens the dashboard and the API, from their parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from paddock.domain.recovery.thresholds import RecoveryTerms
from paddock.ports import Clock, Ids, Wakeups
from paddock.store.database import Database
from paddock.store.reading import PgReading
from paddock.store.store import PgStore
from paddock.web.access import Access
from paddock.web.api import Api
from paddock.web.console import Console
from paddock.web.dashboard.pages import Pages
from paddock.web.dashboard.rendering import Renderer, Static
from paddock.web.explanations import Explanations
from paddock.web.live import Live
from paddock.web.rules import Rules
from paddock.web.settings import DashboardSettings
from paddock.web.shown_settings import SettingLine

#: Connections for two readers and one action; others wait for milliseconds. Dispatch has its own ten.
READERS: Final = 3


@asynccontextmanager
async def open_console(
    database: Database,
    settings: DashboardSettings,
    *,
    shown: Sequence[SettingLine],
    wakeups: Wakeups,
    clock: Clock,
    ids: Ids,
    recovery: RecoveryTerms,
    open_to_this_machine: bool,
    secret: bytes,
) -> AsyncIterator[Console]:
    """The console has its own connections, so that viewers do not slow down dispatch."""
    readers = await database.beside(application_name="paddock dashboard", max_size=READERS)
    try:
        reading = PgReading(readers, clock)
        store = PgStore(readers, clock=clock, ids=ids, actor="operator:dashboard")
        explanations = Explanations(reading, clock, recovery.thresholds)
        live = Live(reading, explanations, wakeups, clock)
        rules = Rules(reading, clock, recovery)
        static = Static()
        renderer = Renderer(static)
        console = Console(
            access=Access(
                settings,
                open_to_this_machine=open_to_this_machine,
                secret=secret,
                store=store,
                clock=clock,
                ids=ids,
            ),
            api=Api(
                reading=reading, live=live, explanations=explanations, rules=rules, settings=shown
            ),
            pages=Pages(
                renderer=renderer,
                reading=reading,
                live=live,
                explanations=explanations,
                rules=rules,
                settings=shown,
                clock=clock,
            ),
            renderer=renderer,
            static=static,
            live=live,
            store=store,
            clock=clock,
        )
        yield console
    finally:
        await readers.close()
