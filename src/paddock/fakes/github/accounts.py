"""Accounts, repositories, runner groups, Apps and their installations: what users change in GitHub's
settings, and the webhooks that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from paddock.fakes.github.hooks import Hooks
from paddock.fakes.github.jobs import Jobs
from paddock.fakes.github.records import (
    RUNNER_PERMISSIONS,
    Account,
    AccountType,
    App,
    Installation,
    Job,
    Repository,
    RunnerEnd,
    RunnerGroup,
)
from paddock.fakes.github.runners import DEFAULT_GROUP_ID
from paddock.fakes.github.world import World


class Accounts:
    def __init__(self, world: World, hooks: Hooks, jobs: Jobs) -> None:
        self._world = world
        self._hooks = hooks
        self._jobs = jobs

    def add_organization(self, login: str) -> Account:
        return self._add(login, "Organization")

    def add_user(self, login: str) -> Account:
        return self._add(login, "User")

    def _add(self, login: str, kind: AccountType) -> Account:
        world = self._world
        if world.account(login) is not None:
            raise ValueError(f"There is already an account {login!r}.")
        account = Account(world.ids.account(), login, kind, world.time)
        world.accounts[login.lower()] = account
        world.groups[account.id] = [
            RunnerGroup(DEFAULT_GROUP_ID, account, "Default", default=True, visibility="all")
        ]
        return account

    def rename(self, account: Account, login: str) -> None:
        world = self._world
        was, account.login = account.login, login
        world.accounts[login.lower()] = world.accounts.pop(was.lower())
        world.repositories = {
            repository.full_name.lower(): repository for repository in world.repositories.values()
        }
        for installation in self._installations(account):
            self._hooks.installation_renamed(installation, was)

    def add_repository(
        self, owner: Account, name: str, *, private: bool = True, fork: bool = False
    ) -> Repository:
        world = self._world
        repository = Repository(world.ids.repository(), owner, name, private, fork, world.time)
        if world.repository(repository.full_name) is not None:
            raise ValueError(f"There is already a repository {repository.full_name!r}.")
        world.repositories[repository.full_name.lower()] = repository
        for installation in self._installations(owner):
            if installation.selection == "all":
                self._hooks.installation_repositories(installation, added=[repository])
        return repository

    def delete_repository(self, repository: Repository) -> list[Job]:
        """Deletes its runs, jobs and runners too. GitHub sends no webhook for its jobs, and its API
        shows none. Returns them."""
        world = self._world
        del world.repositories[repository.full_name.lower()]
        forgotten = self._jobs.forget_repository(repository)
        for runner in world.runners_of(repository):
            self._jobs.forget_idle(runner)
            world.remove_runner(runner, RunnerEnd.DELETED)
        return forgotten

    def add_group(
        self,
        owner: Account,
        name: str,
        *,
        repositories: Iterable[Repository] | None = None,
        allows_public: bool = True,
    ) -> RunnerGroup:
        """`repositories`: the ones that may use it; None: all."""
        group = RunnerGroup(
            self._world.ids.group(),
            owner,
            name,
            default=False,
            visibility="all" if repositories is None else "selected",
            repositories={repository.id for repository in repositories or ()},
            allows_public=allows_public,
        )
        self._world.groups[owner.id].append(group)
        return group

    def set_group_repositories(
        self, group: RunnerGroup, repositories: Iterable[Repository]
    ) -> None:
        group.visibility = "selected"
        group.repositories = {repository.id for repository in repositories}
        self._jobs.match(group.owner)

    def add_app(
        self,
        slug: str,
        *,
        public_keys: Iterable[str] = (),
        webhook_secret: str = "secret",  # noqa: S107 - a fake's default
        webhook_url: str | None = None,
        app_id: int | None = None,
        owner: Account | None = None,
    ) -> App:
        world = self._world
        number = app_id if app_id is not None else world.ids.app()
        app = App(
            id=number,
            slug=slug,
            client_id="Iv23li" + world.ids.text(14),
            hook_id=world.ids.hook(),
            owner=owner or world.account("paddock-apps") or self.add_organization("paddock-apps"),
            public_keys=tuple(public_keys),
            webhook_secret=webhook_secret,
            webhook_url=webhook_url,
            created_at=world.time,
        )
        world.apps[app.id] = app
        self._hooks.ping(app)
        return app

    def install(
        self,
        app: App,
        account: Account,
        *,
        repositories: Iterable[Repository] | None = None,
        permissions: Mapping[str, str] = RUNNER_PERMISSIONS,
    ) -> Installation:
        """`repositories`: the selected ones; None: all there are and will be."""
        world = self._world
        selection: Literal["all", "selected"] = "all" if repositories is None else "selected"
        installation = Installation(
            id=world.ids.installation(),
            app=app,
            account=account,
            selection=selection,
            repositories={repository.id for repository in repositories or ()},
            permissions=dict(permissions),
            created_at=world.time,
            updated_at=world.time,
        )
        world.installations[installation.id] = installation
        self._hooks.installation(installation, "created", self.covered(installation))
        return installation

    def suspend(self, installation: Installation) -> None:
        if installation.suspended_at is None:
            installation.suspended_at = installation.updated_at = self._world.time
            self._hooks.installation(installation, "suspend")

    def unsuspend(self, installation: Installation) -> None:
        if installation.suspended_at is not None:
            installation.suspended_at = None
            installation.updated_at = self._world.time
            self._hooks.installation(installation, "unsuspend")

    def uninstall(self, installation: Installation) -> None:
        if not installation.removed:
            covered = self.covered(installation)
            installation.removed = True
            self._hooks.installation(installation, "deleted", covered)

    def accept_permissions(
        self, installation: Installation, permissions: Mapping[str, str]
    ) -> None:
        installation.permissions = dict(permissions)
        installation.updated_at = self._world.time
        self._hooks.installation(installation, "new_permissions_accepted")

    def select_repositories(
        self, installation: Installation, repositories: Iterable[Repository]
    ) -> None:
        before = {repository.id: repository for repository in self.covered(installation)}
        after = {repository.id: repository for repository in repositories}
        installation.selection, installation.repositories = "selected", set(after)
        installation.updated_at = self._world.time
        added = [after[number] for number in after if number not in before]
        removed = [before[number] for number in before if number not in after]
        if added:
            self._hooks.installation_repositories(installation, added=added)
        if removed:
            self._hooks.installation_repositories(installation, removed=removed)

    def covered(self, installation: Installation) -> list[Repository]:
        return [
            repository
            for repository in self._world.repositories.values()
            if installation.covers(repository)
        ]

    def _installations(self, account: Account) -> list[Installation]:
        return [
            installation
            for installation in self._world.installations.values()
            if installation.account is account and not installation.removed
        ]
