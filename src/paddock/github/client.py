"""The `GitHub` port over HTTP.

One short method for each question the core asks. `caller` holds what they share (credentials, budgets,
repetition, classification), `wire` the format of the answers. This module enforces one rule: "not
found" is believed only after a control read of the same scope with the same token (I66). GitHub answers
404 to every request of a suspended installation, and believing that once would deregister a fleet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlsplit

from paddock.domain.github.errors import BackOff, GitHubError, Kind
from paddock.domain.github.objects import (
    RUNNER_LABELS_MAX,
    Absent,
    ActiveRuns,
    AppKey,
    DeliveryId,
    DeliveryPage,
    InstallationId,
    InstallationKey,
    InstallationRecord,
    JobRecord,
    MintedJit,
    NameConflict,
    Operation,
    Removal,
    RepositoryRecord,
    RunId,
    RunnerGroup,
    RunnerGroupId,
    RunnerPage,
    RunnerRecord,
    RunRecord,
    Scope,
    decide_conflict,
)
from paddock.domain.ids import GitHubRunnerId, JobId
from paddock.domain.names import RUNNER_NAME_MAX
from paddock.domain.runners.versions import RunnerVersion, VersionSchedule
from paddock.github import wire
from paddock.github.apps import Apps
from paddock.github.budget import Budget
from paddock.github.caller import ApiRequest, Caller, CallerKey, Connect, Received, app_request
from paddock.ports import Clock

#: The most entries that GitHub puts on a page.
PER_PAGE: Final = 100
#: Pages of active runs per read: each run costs one more request, and a repository with hundreds of
#: active runs is read again soon.
RUN_PAGES: Final = 2
#: Several matrices of 256 jobs in one workflow are rare, thousands unheard of.
JOB_PAGES: Final = 10

T = TypeVar("T")


class GitHubClient:
    """`paddock.ports.GitHub` documents each method."""

    def __init__(
        self, apps: Apps, *, clock: Clock, budget: Budget, connect: Connect | None = None
    ) -> None:
        """`connect`: how to reach the hosts, if not over HTTP."""
        self._caller = Caller(apps, clock=clock, budget=budget, connect=connect)

    async def aclose(self) -> None:
        await self._caller.aclose()

    async def mint_jit(
        self,
        who: InstallationKey,
        scope: Scope,
        *,
        name: str,
        runner_group_id: RunnerGroupId,
        labels: Sequence[str],
        work_folder: str = "_work",
    ) -> MintedJit:
        if not 0 < len(name) <= RUNNER_NAME_MAX:
            raise ValueError(f"a runner's name has 1 to {RUNNER_NAME_MAX} characters: {name!r}")
        if not 0 < len(labels) <= RUNNER_LABELS_MAX:
            raise ValueError(f"a runner has 1 to {RUNNER_LABELS_MAX} labels, not {len(labels)}")
        request = ApiRequest(
            operation=Operation.MINT,
            method="POST",
            path=f"{scope.path}/actions/runners/generate-jitconfig",
            what=f"register runner {name} at {_place(who, scope)}",
            at=_back_off(scope),
            body={
                "name": name,
                "runner_group_id": runner_group_id,
                "labels": list(labels),
                "work_folder": work_folder,
            },
        )
        return (await self._caller.read(who, request, wire.Minted)).record(who.host)

    async def resolve_name_conflict(
        self, who: InstallationKey, scope: Scope, *, name: str
    ) -> NameConflict:
        return decide_conflict(await self.find_runner(who, scope, name=name))

    async def delete_runner(
        self, who: InstallationKey, scope: Scope, runner: GitHubRunnerId
    ) -> Removal:
        request = ApiRequest(
            operation=Operation.DELETE_RUNNER,
            method="DELETE",
            path=f"{scope.path}/actions/runners/{runner}",
            what=f"delete runner {runner} of {_place(who, scope)}",
            at=_back_off(scope),
        )
        try:
            answered = await self._of_runner(who, scope, request)
        except GitHubError as error:
            if error.failure.kind is Kind.RUNNER_BUSY:
                return Removal.BUSY
            raise
        return Removal.ABSENT if isinstance(answered, Absent) else Removal.REMOVED

    async def find_runner(
        self, who: InstallationKey, scope: Scope, *, name: str
    ) -> RunnerRecord | Absent:
        request = _runners(who, scope, {"name": name, "per_page": PER_PAGE})
        try:
            # Older Enterprise Servers ignore the name and list everything.
            pages = await self._caller.everything(who, request, wire.RunnerPage)
        except GitHubError as error:
            return await self._absent_if_deleted(who, scope, error)
        for page in pages:
            for runner in page.runners:
                if runner.name.casefold() == name.casefold():
                    return runner.record(who.host)
        return Absent(proof=f"no {name} among the runners of {_place(who, scope)}")

    async def get_runner(
        self, who: InstallationKey, scope: Scope, runner: GitHubRunnerId
    ) -> RunnerRecord | Absent:
        request = ApiRequest(
            operation=Operation.GET_RUNNER,
            method="GET",
            path=f"{scope.path}/actions/runners/{runner}",
            what=f"show runner {runner} of {_place(who, scope)}",
            at=_back_off(scope),
        )
        answered = await self._of_runner(who, scope, request)
        if isinstance(answered, Absent):
            return answered
        return self._caller.decode(request, answered.answer, wire.Runner).record(who.host)

    async def list_runners(
        self, who: InstallationKey, scope: Scope, *, page: str | None = None
    ) -> RunnerPage | Absent:
        request = _runners(who, scope, {"per_page": PER_PAGE})
        if page is not None:
            request = replace(request, path=page, params={})
        if scope.repository is None:
            answer = (await self._caller.ask(who, request)).answer
        else:
            received = await self._answered(who, request, _repositories(who, {"per_page": 1}))
            if isinstance(received, Absent):
                return received
            answer = received.answer
        found = self._caller.decode(request, answer, wire.RunnerPage)
        return RunnerPage(
            runners=tuple(runner.record(who.host) for runner in found.runners), next=answer.next
        )

    async def control_read(self, who: InstallationKey, scope: Scope) -> None:
        await self._caller.read(who, _runners(who, scope), wire.RunnerPage)

    async def list_runner_groups(self, who: InstallationKey, scope: Scope) -> Sequence[RunnerGroup]:
        if scope.repository is not None:
            raise ValueError(f"{scope} is a repository; only organisations have runner groups")
        request = ApiRequest(
            operation=Operation.LIST_GROUPS,
            method="GET",
            path=f"{scope.path}/actions/runner-groups",
            what=f"list the runner groups of {_place(who, scope)}",
            at=BackOff.ACCOUNT,
            params={"per_page": PER_PAGE},
        )
        pages = await self._caller.everything(who, request, wire.Groups)
        return [group.record(who.host) for page in pages for group in page.runner_groups]

    async def get_version_schedule(
        self, who: InstallationKey, scope: Scope, version: RunnerVersion
    ) -> VersionSchedule | Absent:
        request = ApiRequest(
            operation=Operation.GET_VERSION,
            method="GET",
            path=f"{scope.path}/actions/runners/deprecations/{version}",
            what=f"show the dates of runner version {version} at {_place(who, scope)}",
            at=_back_off(scope),
        )
        found = await self._look_up(who, request, wire.VersionDates, _runners(who, scope))
        if isinstance(found, Absent):
            return found
        if found.runner_version != version:
            raise self._caller.malformed(request, "it is about another version")
        return found.schedule(version)

    async def get_job(
        self, who: InstallationKey, repository: Scope, job: JobId
    ) -> JobRecord | Absent:
        request = ApiRequest(
            operation=Operation.GET_JOB,
            method="GET",
            path=f"{_repository(repository)}/actions/jobs/{job}",
            what=f"show job {job} of {_place(who, repository)}",
            at=BackOff.REPOSITORY,
        )
        found = await self._look_up(who, request, wire.Job, _runs(who, repository))
        return found if isinstance(found, Absent) else found.record(who.host)

    async def get_run(
        self, who: InstallationKey, repository: Scope, run: RunId
    ) -> RunRecord | Absent:
        request = ApiRequest(
            operation=Operation.GET_RUN,
            method="GET",
            path=f"{_repository(repository)}/actions/runs/{run}",
            what=f"show run {run} of {_place(who, repository)}",
            at=BackOff.REPOSITORY,
        )
        found = await self._look_up(who, request, wire.Run, _runs(who, repository))
        return found if isinstance(found, Absent) else found.record(who.host)

    async def list_active_runs(self, who: InstallationKey, repository: Scope) -> ActiveRuns:
        runs: dict[RunId, RunRecord] = {}
        complete = True
        # In this order at least one of the two reads sees a run that starts between them.
        for status in ("queued", "in_progress"):
            request = _runs(who, repository, {"status": status, "per_page": PER_PAGE})
            pages, whole = await self._caller.pages(who, request, wire.Runs, most=RUN_PAGES)
            complete &= whole
            found = [run.record(who.host) for page in pages for run in page.workflow_runs]
            runs |= {run.id: run for run in found}
        listed = []
        for run in runs.values():
            jobs, whole = await self._jobs_of(who, repository, run.id)
            complete &= whole
            listed.append((run, jobs))
        return ActiveRuns(runs=tuple(listed), complete=complete)

    async def list_repositories(self, who: InstallationKey) -> Sequence[RepositoryRecord]:
        request = _repositories(who, {"per_page": PER_PAGE})
        pages = await self._caller.everything(who, request, wire.Repositories)
        return [found.record(who.host) for page in pages for found in page.repositories]

    async def list_installations(self, app: AppKey) -> Sequence[InstallationRecord]:
        request = ApiRequest(
            operation=Operation.LIST_INSTALLATIONS,
            method="GET",
            path="/app/installations",
            what=f"list the installations of {app}",
            at=BackOff.APP,
            params={"per_page": PER_PAGE},
        )
        pages = await self._caller.everything(app, request, list[wire.Installation])
        return [found.record(app.host) for page in pages for found in page]

    async def get_installation(
        self, app: AppKey, installation: InstallationId
    ) -> InstallationRecord | Absent:
        request = ApiRequest(
            operation=Operation.GET_INSTALLATION,
            method="GET",
            path=f"/app/installations/{installation}",
            what=f"show installation {installation} of {app}",
            at=BackOff.ACCOUNT,
        )
        found = await self._look_up(app, request, wire.Installation, app_request(app))
        return found if isinstance(found, Absent) else found.record(app.host)

    async def list_deliveries(self, app: AppKey, *, cursor: str | None = None) -> DeliveryPage:
        request = ApiRequest(
            operation=Operation.LIST_DELIVERIES,
            method="GET",
            path="/app/hook/deliveries",
            what=f"list the webhook deliveries of {app}",
            at=BackOff.APP,
            params={"per_page": PER_PAGE} | ({"cursor": cursor} if cursor else {}),
        )
        answer = (await self._caller.ask(app, request)).answer
        found = self._caller.decode(request, answer, list[wire.Delivery])
        following = parse_qs(urlsplit(answer.next or "").query).get("cursor")
        if answer.next and not following:
            raise self._caller.malformed(request, "its next page has no cursor")
        return DeliveryPage(
            deliveries=tuple(delivery.record(app.host) for delivery in found),
            next=following[0] if following else None,
        )

    async def redeliver(self, app: AppKey, delivery: DeliveryId) -> None:
        request = ApiRequest(
            operation=Operation.REDELIVER,
            method="POST",
            path=f"/app/hook/deliveries/{delivery}/attempts",
            what=f"repeat webhook delivery {delivery} of {app}",
            at=BackOff.APP,
        )
        await self._caller.ask(app, request)

    async def _of_runner(
        self, who: InstallationKey, scope: Scope, request: ApiRequest
    ) -> Received | Absent:
        try:
            return await self._answered(who, request, _runners(who, scope))
        except GitHubError as error:
            return await self._absent_if_deleted(who, scope, error)

    async def _absent_if_deleted(
        self, who: InstallationKey, scope: Scope, error: GitHubError
    ) -> Absent:
        """GitHub deletes a repository's runners with the repository. The proof of the deletion is the
        complete list of repositories that the same installation can read. An empty list counts only if
        GitHub tells the App that the installation is active (I66). Without proof `error` is raised."""
        if scope.repository is None or error.failure.kind is not Kind.NOT_FOUND:
            raise error
        listed = await self.list_repositories(who)
        if not listed:
            found = await self.get_installation(who.app_key, who.installation)
            if isinstance(found, Absent) or found.suspended_at is not None:
                raise error
        full_name = f"{scope.owner}/{scope.repository}"
        if full_name.casefold() in {each.full_name.casefold() for each in listed}:
            raise error
        return Absent(proof=f"{full_name} is not among the repositories that {who} can read")

    async def _look_up(
        self, who: CallerKey, request: ApiRequest, kind: type[T], control: ApiRequest
    ) -> T | Absent:
        answered = await self._answered(who, request, control)
        if isinstance(answered, Absent):
            return answered
        return self._caller.decode(request, answered.answer, kind)

    async def _answered(
        self, who: CallerKey, request: ApiRequest, control: ApiRequest
    ) -> Received | Absent:
        """Believe a 404 if the same token can read the scope, and the answer is still a 404 after that
        (I66): the first 404 may have been the end of an outage. If the scope cannot be read, that
        read's error is raised, because it names the scope that has to back off; the 404 does not."""
        received = await self._caller.ask(who, request, answers={404})
        if received.answer.ok:
            return received
        await self._caller.ask(who, control, token=received.token)
        again = await self._caller.ask(who, request, answers={404}, token=received.token)
        if again.answer.ok:
            return again
        return Absent(
            proof=f"{request.method} {request.path}: 404, while {control.path} could be read"
        )

    async def _jobs_of(
        self, who: InstallationKey, repository: Scope, run: RunId
    ) -> tuple[tuple[JobRecord, ...], bool]:
        request = ApiRequest(
            operation=Operation.LIST_JOBS,
            method="GET",
            path=f"{_repository(repository)}/actions/runs/{run}/jobs",
            what=f"list the jobs of run {run} of {_place(who, repository)}",
            at=BackOff.REPOSITORY,
            params={"filter": "latest", "per_page": PER_PAGE},
        )
        try:
            pages, whole = await self._caller.pages(who, request, wire.Jobs, most=JOB_PAGES)
        except GitHubError as error:
            if error.failure.kind is Kind.NOT_FOUND:  # deleted since it was listed
                return (), False
            raise
        return tuple(job.record(who.host) for page in pages for job in page.jobs), whole


def _runners(
    who: InstallationKey, scope: Scope, params: dict[str, str | int] | None = None
) -> ApiRequest:
    return ApiRequest(
        operation=Operation.LIST_RUNNERS,
        method="GET",
        path=f"{scope.path}/actions/runners",
        what=f"list the runners of {_place(who, scope)}",
        at=_back_off(scope),
        params=params or {"per_page": 1},
    )


def _repositories(who: InstallationKey, params: dict[str, str | int]) -> ApiRequest:
    return ApiRequest(
        operation=Operation.LIST_REPOSITORIES,
        method="GET",
        path="/installation/repositories",
        what=f"list the repositories of {who}",
        at=BackOff.ACCOUNT,
        params=params,
    )


def _runs(
    who: InstallationKey, repository: Scope, params: dict[str, str | int] | None = None
) -> ApiRequest:
    return ApiRequest(
        operation=Operation.LIST_RUNS,
        method="GET",
        path=f"{_repository(repository)}/actions/runs",
        what=f"list the runs of {_place(who, repository)}",
        at=BackOff.REPOSITORY,
        params=params or {"per_page": 1},
    )


def _repository(scope: Scope) -> str:
    if scope.repository is None:
        raise ValueError(f"{scope} is an organisation; jobs and runs belong to a repository")
    return scope.path


def _place(who: InstallationKey, scope: Scope) -> str:
    """The scope as text. Every request with a scope passes here, so the host is checked here."""
    if scope.host != who.host:
        raise ValueError(f"{scope} is on {scope.host}, but {who} is asked (I71)")
    return f"{scope} on {scope.host}"


def _back_off(scope: Scope) -> BackOff:
    return BackOff.ACCOUNT if scope.repository is None else BackOff.REPOSITORY
