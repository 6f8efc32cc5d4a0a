"""A backup is restored while Pods keep running (I70).

Everything written after the backup was taken is lost. Runners whose Pods live have no row, or an older
state of it. Pools, limits and accounts are left as they are: operators apply them again.
"""

from __future__ import annotations

from typing import Final

from simulator.engine.database import Session

#: No table outside this list refers to a table in it.
_REWOUND: Final = ("runners", "mints", "jobs", "job_checks", "supply_graces", "verdicts", "vitals")


class Backup:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.taken = False

    async def take(self) -> None:
        for table in _REWOUND:
            await self._session.execute(f"DROP TABLE IF EXISTS pg_temp.kept_{table}")
            await self._session.execute(f"CREATE TEMP TABLE kept_{table} AS TABLE public.{table}")
        self.taken = True

    async def restore(self) -> None:
        """Bypasses every guard, as a real restore does."""
        names = ", ".join(f"public.{table}" for table in _REWOUND)
        await self._session.execute("SET session_replication_role = replica")
        try:
            await self._session.execute(f"TRUNCATE {names}")
            for table in _REWOUND:
                columns = await self._columns(table)
                await self._session.execute(
                    f"INSERT INTO public.{table} ({columns})"  # noqa: S608 - names of the schema
                    f" SELECT {columns} FROM pg_temp.kept_{table}"
                )
        finally:
            await self._session.execute("SET session_replication_role = origin")

    async def _columns(self, table: str) -> str:
        """All columns but generated ones."""
        rows = await self._session.fetch(
            "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0"
            " AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            f"public.{table}",
        )
        return ", ".join(f'"{row["attname"]}"' for row in rows)

    async def unsettled_names(self) -> set[str]:
        rows = await self._session.fetch(
            "SELECT name FROM mints WHERE state <> 'settled' ORDER BY name"
        )
        return {row["name"] for row in rows}

    async def jobs(self) -> set[int]:
        rows = await self._session.fetch("SELECT id FROM jobs ORDER BY id")
        return {row["id"] for row in rows}

    async def served(self) -> set[str]:
        """Pods that were given a JIT, by their rows."""
        rows = await self._session.fetch(
            "SELECT pod_name FROM runners WHERE delivery_id IS NOT NULL ORDER BY pod_name"
        )
        return {row["pod_name"] for row in rows}

    async def holding(self) -> set[str]:
        """Pods that hold a place of their account's capacity, by their rows."""
        rows = await self._session.fetch(
            "SELECT pod_name FROM runners"
            " WHERE key_id IS NOT NULL AND gone_at IS NULL ORDER BY pod_name"
        )
        return {row["pod_name"] for row in rows}
