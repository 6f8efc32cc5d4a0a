"""The addresses of GitHub's services for runners, and their identifiers of a job.

A runner does not call GitHub's REST API. It calls services for runners: a broker for messages, a run
service for jobs, a results service for steps and logs. GitHub has a host for each; here each has a
path below `/_runner`.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid5

from paddock.fakes.github.records import Job, Runner

PREFIX: Final = "/_runner"
TOKEN_PATH: Final = f"{PREFIX}/token"
BROKER_PATH: Final = f"{PREFIX}/broker"
RUN_PATH: Final = f"{PREFIX}/run"
RESULTS_PATH: Final = f"{PREFIX}/results"
BLOB_PATH: Final = f"{PREFIX}/blob"
FEED_PATH: Final = f"{PREFIX}/feed"

# These services know a job by identifiers that the REST API does not show. They follow from numbers,
# so that each service finds them without asking another.

_NAMESPACE: Final = UUID("6a3c1f3e-6f0b-4a53-9d0e-0f4f1f6d2c11")


def job_id(job: Job) -> str:
    return str(uuid5(_NAMESPACE, f"job/{job.id}"))


def plan_id(job: Job) -> str:
    return str(uuid5(_NAMESPACE, f"plan/{job.run.id}/{job.attempt}"))


def request_id(job: Job, runner: Runner) -> str:
    return str(uuid5(_NAMESPACE, f"request/{job.id}/{runner.id}"))


def step_id(job: Job, number: int) -> str:
    return str(uuid5(_NAMESPACE, f"step/{job.id}/{number}"))
