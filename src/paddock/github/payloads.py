"""GitHub's webhook payloads. Only the fields that paddock uses are read.

A payload is untrusted input and is stored before it is decoded. A value that cannot be written to a row
(a number above 63 bits, a NUL in a text) is refused during decoding: in a batch it would fail the other
rows (I13).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec

#: GitHub's ids begin at 1 and PostgreSQL stores 63 bits. GitHub also uses 0 for "none".
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: PostgreSQL stores any text without a NUL.
Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]
#: What happened; stored in a column of its own.
Action = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$", max_length=100)]
Time = Annotated[datetime, msgspec.Meta(tz=True)]


class WorkflowJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as one event describes it. While `runner_id` is null or 0 no runner executes the job: it
    has not started, or it was cancelled in the queue."""

    id: Number
    run_id: Number
    name: Text
    status: Text
    labels: tuple[Text, ...]
    # Early Enterprise Servers sent such events without these fields.
    run_attempt: Number = 1
    created_at: Time | None = None
    workflow_name: Text | None = None
    head_branch: Text | None = None
    conclusion: Text | None = None
    started_at: Time | None = None
    completed_at: Time | None = None
    runner_id: Number | None = None
    runner_name: Text | None = None
    runner_group_id: Number | None = None


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    id: Number
    login: Text


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    id: Number
    full_name: Text
    owner: Owner


class InstallationReference(msgspec.Struct, frozen=True, kw_only=True):
    """The tenant (I4). Missing in events of a webhook set up on a repository or organisation itself."""

    id: Number


class WorkflowJobEvent(msgspec.Struct, frozen=True, kw_only=True):
    action: Action
    workflow_job: WorkflowJob
    repository: Repository
    installation: InstallationReference | None = None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A user or an organisation. An enterprise has no login, only a slug."""

    id: Number
    login: Text | None = None
    type: Text | None = None


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    id: Number
    account: Account | None = None
    suspended_at: Time | None = None
    repository_selection: Text | None = None


class InstallationEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`installation` and `installation_repositories`. Both can be replayed and arrive out of order, so
    they only say which installation to read again."""

    action: Action
    installation: Installation


#: What decoding raises. Each message names the field and what was expected there, never the value.
PayloadError: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
