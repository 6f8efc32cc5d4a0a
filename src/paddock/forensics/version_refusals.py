"""Runners that GitHub refused because of their version.

GitHub may refuse a version before its date, and has refused versions by mistake. So the version, and
not the key, is stopped, and it is tried again: first after an hour. If the version is not known,
the runner's key backs off for as long. Either way it is neither a fault of the runner group nor counted
as an end without a job.
"""

from __future__ import annotations

import structlog

from paddock.domain.backoffs import VERSION_REFUSED, BackOffScope, Subject
from paddock.domain.ids import RunnerId
from paddock.domain.runner_versions import REFUSED
from paddock.log_events import RunnerFields
from paddock.ports.runner_versions import RefusedVersionStore

_log = structlog.get_logger()


async def note_refusal(store: RefusedVersionStore, runner: RunnerId, fields: RunnerFields) -> bool:
    """Returns false if the runner had a job: then it was not refused."""
    refused = await store.refuse_version(runner, REFUSED)
    if refused is None:
        return False
    key = Subject(BackOffScope.KEY, refused.key)
    if refused.version is None:
        await store.back_off(key, VERSION_REFUSED)
    else:
        # Where only the log shows the refusal, the end was counted before the log was read.
        await store.recover_from_backoffs([key])
    _log.warning("version.refused", **fields, version=refused.version)
    return True
