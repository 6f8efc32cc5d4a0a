"""GitHub's JSON: one builder per object, used by answers and webhooks alike, so that they cannot
differ by accident. `tests/contract` checks it against GitHub's own description.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from paddock.fakes.github.records import (
    Account,
    App,
    Delivery,
    Installation,
    Job,
    JobStatus,
    Repository,
    Run,
    Runner,
    RunnerGroup,
    Token,
    VersionDates,
)
from paddock.fakes.github.world import World

Json = dict[str, Any]

#: `{name}_url` of a repository: what follows the repository's own address.
_REPOSITORY_URLS: Final = {
    "archive": "/{archive_format}{/ref}",
    "assignees": "/assignees{/user}",
    "blobs": "/git/blobs{/sha}",
    "branches": "/branches{/branch}",
    "collaborators": "/collaborators{/collaborator}",
    "comments": "/comments{/number}",
    "commits": "/commits{/sha}",
    "compare": "/compare/{base}...{head}",
    "contents": "/contents/{+path}",
    "contributors": "/contributors",
    "deployments": "/deployments",
    "downloads": "/downloads",
    "events": "/events",
    "forks": "/forks",
    "git_commits": "/git/commits{/sha}",
    "git_refs": "/git/refs{/sha}",
    "git_tags": "/git/tags{/sha}",
    "hooks": "/hooks",
    "issue_comment": "/issues/comments{/number}",
    "issue_events": "/issues/events{/number}",
    "issues": "/issues{/number}",
    "keys": "/keys{/key_id}",
    "labels": "/labels{/name}",
    "languages": "/languages",
    "merges": "/merges",
    "milestones": "/milestones{/number}",
    "notifications": "/notifications{?since,all,participating}",
    "pulls": "/pulls{/number}",
    "releases": "/releases{/id}",
    "stargazers": "/stargazers",
    "statuses": "/statuses/{sha}",
    "subscribers": "/subscribers",
    "subscription": "/subscription",
    "tags": "/tags",
    "teams": "/teams",
    "trees": "/git/trees{/sha}",
}

_USER_URLS: Final = {
    "followers": "/followers",
    "following": "/following{/other_user}",
    "gists": "/gists{/gist_id}",
    "starred": "/starred{/owner}{/repo}",
    "subscriptions": "/subscriptions",
    "organizations": "/orgs",
    "repos": "/repos",
    "events": "/events{/privacy}",
    "received_events": "/received_events",
}


def stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _maybe(moment: datetime | None) -> str | None:
    return stamp(moment) if moment else None


def user(world: World, account: Account) -> Json:
    url = f"{world.api_url}/users/{account.login}"
    return {
        "login": account.login,
        "id": account.id,
        "node_id": f"U_{account.id}",
        "avatar_url": f"{world.html_url}/avatars/{account.id}",
        "gravatar_id": "",
        "url": url,
        "html_url": f"{world.html_url}/{account.login}",
        "type": account.type,
        "site_admin": False,
        "user_view_type": "public",
        **{f"{name}_url": url + tail for name, tail in _USER_URLS.items()},
    }


def organization(world: World, account: Account) -> Json:
    url = f"{world.api_url}/orgs/{account.login}"
    return {
        "login": account.login,
        "id": account.id,
        "node_id": f"O_{account.id}",
        "url": url,
        "repos_url": f"{url}/repos",
        "events_url": f"{url}/events",
        "hooks_url": f"{url}/hooks",
        "issues_url": f"{url}/issues",
        "members_url": f"{url}/members{{/member}}",
        "public_members_url": f"{url}/public_members{{/member}}",
        "avatar_url": f"{world.html_url}/avatars/{account.id}",
        "description": None,
    }


def repository(world: World, repo: Repository) -> Json:
    url = f"{world.api_url}/repos/{repo.full_name}"
    page = f"{world.html_url}/{repo.full_name}"
    host = world.html_url.split("://", 1)[1]
    created = stamp(repo.created_at)
    return {
        "id": repo.id,
        "node_id": f"R_{repo.id}",
        "name": repo.name,
        "full_name": repo.full_name,
        "private": repo.private,
        "owner": user(world, repo.owner),
        "html_url": page,
        "description": None,
        "fork": repo.fork,
        "url": url,
        **{f"{name}_url": url + tail for name, tail in _REPOSITORY_URLS.items()},
        "created_at": created,
        "updated_at": created,
        "pushed_at": created,
        "git_url": f"git://{host}/{repo.full_name}.git",
        "ssh_url": f"git@{host}:{repo.full_name}.git",
        "clone_url": f"{page}.git",
        "svn_url": page,
        "homepage": None,
        "size": 1,
        "stargazers_count": 0,
        "watchers_count": 0,
        "language": None,
        "has_issues": True,
        "has_projects": True,
        "has_downloads": True,
        "has_wiki": True,
        "has_pages": False,
        "has_discussions": False,
        "forks_count": 0,
        "mirror_url": None,
        "archived": False,
        "disabled": False,
        "open_issues_count": 0,
        "license": None,
        "allow_forking": True,
        "is_template": False,
        "web_commit_signoff_required": False,
        "topics": [],
        "visibility": "private" if repo.private else "public",
        "forks": 0,
        "open_issues": 0,
        "watchers": 0,
        "default_branch": "main",
        "custom_properties": {},
    }


def full_repository(world: World, repo: Repository) -> Json:
    return repository(world, repo) | {"network_count": 0, "subscribers_count": 0}


def app(world: World, of: App) -> Json:
    return {
        "id": of.id,
        "client_id": of.client_id,
        "slug": of.slug,
        "node_id": f"A_{of.id}",
        "owner": user(world, of.owner),
        "name": of.slug,
        "description": None,
        "external_url": f"{world.html_url}/apps/{of.slug}",
        "html_url": f"{world.html_url}/apps/{of.slug}",
        "created_at": stamp(of.created_at),
        "updated_at": stamp(of.created_at),
        "permissions": dict(of.permissions),
        "events": list(of.events),
        "installations_count": sum(
            1 for one in world.installations.values() if one.app is of and not one.removed
        ),
    }


def installation(world: World, of: Installation) -> Json:
    kind = "organizations/" if of.account.type == "Organization" else ""
    page = f"{kind}{of.account.login}/settings" if kind else "settings"
    return {
        "id": of.id,
        "client_id": of.app.client_id,
        "account": user(world, of.account),
        "repository_selection": of.selection,
        "access_tokens_url": f"{world.api_url}/app/installations/{of.id}/access_tokens",
        "repositories_url": f"{world.api_url}/installation/repositories",
        "html_url": f"{world.html_url}/{page}/installations/{of.id}",
        "app_id": of.app.id,
        "app_slug": of.app.slug,
        "target_id": of.account.id,
        "target_type": of.account.type,
        "permissions": dict(of.permissions),
        "events": list(of.app.events),
        "created_at": stamp(of.created_at),
        "updated_at": stamp(of.updated_at),
        "single_file_name": None,
        "has_multiple_single_files": False,
        "single_file_paths": [],
        "suspended_by": user(world, of.account) if of.suspended_at else None,
        "suspended_at": _maybe(of.suspended_at),
    }


def token(world: World, of: Token, repositories: Iterable[Repository]) -> Json:
    body: Json = {
        "token": of.value,
        "expires_at": stamp(of.expires_at),
        "permissions": dict(of.permissions),
        "repository_selection": of.installation.selection,
    }
    if of.installation.selection == "selected" or of.repositories is not None:
        body["repository_selection"] = "selected"
        body["repositories"] = [repository(world, repo) for repo in repositories]
    return body


def group(world: World, of: RunnerGroup) -> Json:
    url = f"{world.api_url}/orgs/{of.owner.login}/actions/runner-groups/{of.id}"
    body: Json = {
        "id": of.id,
        "name": of.name,
        "visibility": of.visibility,
        "default": of.default,
        "runners_url": f"{url}/runners",
        "hosted_runners_url": f"{url}/hosted-runners",
        "inherited": False,
        "allows_public_repositories": of.allows_public,
        "restricted_to_workflows": False,
        "selected_workflows": [],
        "workflow_restrictions_read_only": False,
    }
    if of.visibility == "selected":
        body["selected_repositories_url"] = f"{url}/repositories"
    return body


def runner(world: World, of: Runner, *, busy: bool | None = None) -> Json:
    return {
        "id": of.id,
        "name": of.name,
        "runner_group_id": of.group.id,
        "os": of.os,
        "status": "online" if world.online(of) else "offline",
        "busy": world.says_busy(of) if busy is None else busy,
        "ephemeral": of.ephemeral,
        "version": of.version,
        "labels": [
            {"id": number, "name": label, "type": "custom"}
            for number, label in enumerate(of.labels, start=1)
        ],
    }


def version_dates(version: str, of: VersionDates) -> Json:
    return {
        "runner_version": version,
        "registration_deprecates_at": _maybe(of.registration_deprecates_at),
        "runtime_deprecates_at": _maybe(of.runtime_deprecates_at),
    }


def _executor(of: Job) -> Json:
    if of.runner is not None:
        return {
            "runner_id": of.runner.id,
            "runner_name": of.runner.name,
            "runner_group_id": of.runner.group.id,
            "runner_group_name": of.runner.group.name,
        }
    no_id, no_name = (0, "") if of.no_runner_is_zero else (None, None)
    return {
        "runner_id": no_id,
        "runner_name": no_name,
        "runner_group_id": no_id,
        "runner_group_name": no_name,
    }


def job(world: World, of: Job) -> Json:
    run_url = f"{world.api_url}/repos/{of.repository.full_name}/actions/runs/{of.run.id}"
    page = f"{world.html_url}/{of.repository.full_name}/actions/runs/{of.run.id}/job/{of.id}"
    return {
        "id": of.id,
        "run_id": of.run.id,
        "workflow_name": of.run.workflow,
        "head_branch": "main",
        "run_url": run_url,
        "run_attempt": of.attempt,
        "node_id": f"CR_{of.id}",
        "head_sha": of.run.head_sha,
        "url": f"{world.api_url}/repos/{of.repository.full_name}/actions/jobs/{of.id}",
        "html_url": page,
        "status": str(of.status),
        "conclusion": of.conclusion,
        "created_at": stamp(of.created_at),
        "started_at": stamp(of.started_at or of.created_at),
        "completed_at": _maybe(of.completed_at),
        "name": of.spec.name,
        "steps": list(of.steps),
        "check_run_url": f"{world.api_url}/repos/{of.repository.full_name}/check-runs/{of.id}",
        "labels": list(of.spec.labels),
        **_executor(of),
    }


def run(world: World, of: Run) -> Json:
    repo_url = f"{world.api_url}/repos/{of.repository.full_name}"
    url = f"{repo_url}/actions/runs/{of.id}"
    actor = user(world, of.repository.owner)
    person = {"name": of.repository.owner.login, "email": "someone@example.com"}
    previous = f"{url}/attempts/{of.attempt - 1}" if of.attempt > 1 else None
    return {
        "id": of.id,
        "name": of.workflow,
        "node_id": f"WFR_{of.id}",
        "head_branch": "main",
        "head_sha": of.head_sha,
        "path": f".github/workflows/{of.workflow.lower()}.yml",
        "display_title": of.workflow,
        "run_number": of.number,
        "event": of.event,
        "status": str(of.status),
        "conclusion": of.conclusion,
        "workflow_id": of.repository.id,
        "check_suite_id": of.id,
        "check_suite_node_id": f"CS_{of.id}",
        "url": url,
        "html_url": f"{world.html_url}/{of.repository.full_name}/actions/runs/{of.id}",
        "pull_requests": [],
        "created_at": stamp(of.created_at),
        "updated_at": stamp(of.updated_at),
        "actor": actor,
        "run_attempt": of.attempt,
        "referenced_workflows": [],
        "run_started_at": stamp(of.created_at),
        "triggering_actor": actor,
        "jobs_url": f"{url}/jobs",
        "logs_url": f"{url}/logs",
        "check_suite_url": f"{repo_url}/check-suites/{of.id}",
        "artifacts_url": f"{url}/artifacts",
        "cancel_url": f"{url}/cancel",
        "rerun_url": f"{url}/rerun",
        "previous_attempt_url": previous,
        "workflow_url": f"{repo_url}/actions/workflows/{of.repository.id}",
        "head_commit": {
            "id": of.head_sha,
            "tree_id": of.head_sha,
            "message": of.workflow,
            "timestamp": stamp(of.created_at),
            "author": person,
            "committer": person,
        },
        "repository": repository(world, of.repository),
        "head_repository": repository(world, of.head_repository),
    }


def delivery(of: Delivery) -> Json:
    assert of.delivered_at is not None
    assert of.status_code is not None
    return {
        "id": of.id,
        "guid": of.guid,
        "delivered_at": of.delivered_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "redelivery": of.redelivery,
        "duration": round(of.duration, 2),
        "status": of.status,
        "status_code": of.status_code,
        "event": of.event,
        "action": of.action,
        "installation_id": of.installation_id,
        "repository_id": of.repository_id,
        "throttled_at": None,
    }


def full_delivery(of: Delivery) -> Json:
    return delivery(of) | {
        "url": of.url,
        "request": {"headers": of.request_headers, "payload": of.payload},
        "response": {"headers": of.response_headers, "payload": of.response_payload},
    }


def workflow_job_event(world: World, of: Job, action: str, to: Installation) -> Json:
    assert action in set(JobStatus)
    body: Json = {
        "action": action,
        "workflow_job": job(world, of),
        "repository": repository(world, of.repository),
        "sender": user(world, of.repository.owner),
        "installation": {"id": to.id, "node_id": f"MDI_{to.id}"},
    }
    if of.repository.owner.type == "Organization":
        body["organization"] = organization(world, of.repository.owner)
    return body


def _brief(repo: Repository) -> Json:
    return {
        "id": repo.id,
        "node_id": f"R_{repo.id}",
        "name": repo.name,
        "full_name": repo.full_name,
        "private": repo.private,
    }


def installation_event(
    world: World, of: Installation, action: str, repositories: Iterable[Repository]
) -> Json:
    body: Json = {
        "action": action,
        "installation": installation(world, of),
        "sender": user(world, of.account),
    }
    if action in ("created", "deleted"):
        body["repositories"] = [_brief(repo) for repo in repositories]
    if action == "created":
        body["requester"] = None
    return body


def installation_repositories_event(
    world: World,
    of: Installation,
    action: str,
    *,
    added: Iterable[Repository] = (),
    removed: Iterable[Repository] = (),
) -> Json:
    return {
        "action": action,
        "installation": installation(world, of),
        "repository_selection": of.selection,
        "repositories_added": [_brief(repo) for repo in added],
        "repositories_removed": [_brief(repo) for repo in removed],
        "requester": None,
        "sender": user(world, of.account),
    }


def installation_target_event(world: World, of: Installation, was: str) -> Json:
    return {
        "action": "renamed",
        "account": user(world, of.account),
        "changes": {"login": {"from": was}},
        "installation": {"id": of.id, "node_id": f"MDI_{of.id}"},
        "sender": user(world, of.account),
        "target_type": of.account.type,
    }


def ping_event(world: World, of: App) -> Json:
    created = stamp(of.created_at)
    return {
        "zen": "Keep it logically awesome.",
        "hook_id": of.hook_id,
        "hook": {
            "type": "App",
            "id": of.hook_id,
            "name": "web",
            "active": True,
            "app_id": of.id,
            "events": list(of.events),
            "config": {
                "content_type": "form" if of.webhook_form else "json",
                "insecure_ssl": "0",
                "secret": "********",
                "url": of.webhook_url or "http://localhost/webhooks/github",
            },
            "created_at": created,
            "updated_at": created,
            "deliveries_url": f"{world.api_url}/app/hook/deliveries",
        },
    }
