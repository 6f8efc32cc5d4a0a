"""The longest names that GitHub and Kubernetes allow, and long sentences, in every table."""

from __future__ import annotations

from typing import Final

from paddock.store.database import Database

#: paddock's own limit on a Pod's name, and GitHub's on an account's login and a repository's name.
POD: Final = 44
LOGIN: Final = 39
REPOSITORY: Final = 100
_SENTENCE: Final = (
    " The registry of the images was down for maintenance, so no Pod could start until it was back."
)
#: Names keep the end that distinguishes them.
_POD_NAME: Final = (
    f"left('linux-x64-large-' || repeat('a', {POD}), {POD} - 10)"
    " || right(repeat('b', 10) || pod_name, 10)"
)

_LENGTHEN: Final = f"""
UPDATE runners SET pod_name = {_POD_NAME};
UPDATE runners SET node = 'gke-runners-large-7f3d9b62-' || right(id::text, 4) WHERE node IS NOT NULL;
UPDATE runners SET why = why || '{_SENTENCE}' WHERE why IS NOT NULL;
UPDATE actions SET why = why || '{_SENTENCE}', pod_name = {_POD_NAME} WHERE pod_name IS NOT NULL;
UPDATE accounts
   SET login = rpad(login || '-', {LOGIN} - 1, 'organisation-') || id,
       paused_by = 'operator:alexandra', paused_at = now(), paused_why = '{_SENTENCE}';
UPDATE repositories r
   SET full_name = a.login || '/' || rpad('service-' || r.id || '-', {REPOSITORY}, 'backend-')
  FROM accounts a WHERE a.id = r.account_id;
UPDATE jobs SET name = 'integration (ubuntu-24.04, python-3.12, shard-' || id || ')';
UPDATE deliveries SET note = '{_SENTENCE}';
UPDATE verdicts SET why = why || '{_SENTENCE}', node = 'gke-runners-large-pool-7f3d9b62-1';
UPDATE pools
   SET labels = labels || '{{large,gpu-a100,team-payments,region-eu-west-1}}'::text[],
       paused_by = 'operator:alexandra', paused_at = now(), paused_why = '{_SENTENCE}';
"""


async def lengthen_names(database: Database) -> None:
    async with database.transaction() as connection:
        # Steps and foreign keys do not matter here.
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(_LENGTHEN)
