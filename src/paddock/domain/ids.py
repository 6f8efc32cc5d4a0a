"""Names for the numbers that identify things, so that one is never passed for another.

A GitHub id means something only together with its host (I71). Accounts, repositories, pools, keys
and Apps therefore have numbers of paddock's own; where GitHub's number is used, the host stands
beside it.
"""

from __future__ import annotations

from typing import NewType
from uuid import UUID

HostId = NewType("HostId", int)
AppId = NewType("AppId", int)
AccountId = NewType("AccountId", int)
RepositoryId = NewType("RepositoryId", int)
PoolId = NewType("PoolId", int)
KeyId = NewType("KeyId", int)
RunnerId = NewType("RunnerId", UUID)

#: GitHub's number of a job; unique within a host.
JobId = NewType("JobId", int)
#: GitHub's number of a runner record; unique within a registration scope.
GitHubRunnerId = NewType("GitHubRunnerId", int)
