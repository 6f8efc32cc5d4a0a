"""GitHub's webhook payloads, of which exactly the fields are read that something needs.

Everything here was written by someone else and is stored before it is looked at closely. What could
not be written to a row (a number above 63 bits, a NUL in a text) is refused where it is decoded: in a
batch it would fail the rows beside it (I13).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec

#: GitHub counts upwards from 1 and PostgreSQL keeps 63 bits. 0 is GitHub's other word for "none".
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: PostgreSQL keeps any text but one with a NUL in it.
Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]
#: What happened; kept in a column of its own.
Action = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$", max_length=100)]
Time = Annotated[datetime, msgspec.Meta(tz=True)]


class WorkflowJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as one event tells of it. Nobody executes it while `runner_id` is null or 0: before it
    started, and for ever if it was cancelled in the queue."""

    id: Number
    run_id: Number
    name: Text
    status: Text
    labels: tuple[Text, ...]
    # Enterprise hosts sent the first events of this kind without these.
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
    """The tenant (I4). Missing from webhooks that a repository or an organisation has by itself."""

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
    """`installation` and `installation_repositories`. Both can be replayed and overtaken, so they
    only say which installation to read anew."""

    action: Action
    installation: Installation


#: What decoding raises. Each names the place and what was expected there, never the value.
PayloadError: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
