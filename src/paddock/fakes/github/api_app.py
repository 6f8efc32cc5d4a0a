"""Endpoints that an App calls with its JWT, and those about its installations."""

from __future__ import annotations

from paddock.fakes.github import answers, payloads
from paddock.fakes.github.answers import Reply
from paddock.fakes.github.api import Call, Routes
from paddock.fakes.github.limits import CORE, MINT
from paddock.fakes.github.records import Delivery, Installation, Repository

routes = Routes()


@routes.add("GET", "/app", who="app")
def app(call: Call) -> Reply:
    return Reply(200, payloads.app(call.world, call.app))


@routes.add("GET", "/app/installations", who="app")
def installations(call: Call) -> Reply:
    mine = [
        one for one in call.world.installations.values() if one.app is call.app and not one.removed
    ]
    page, headers = call.page(mine)
    return Reply(200, [payloads.installation(call.world, one) for one in page], headers)


@routes.add("GET", "/app/installations/{installation_id}", who="app")
def installation(call: Call) -> Reply:
    return Reply(200, payloads.installation(call.world, call.installation()))


@routes.add("DELETE", "/app/installations/{installation_id}", who="app")
def uninstall(call: Call) -> Reply:
    call.parts.accounts.uninstall(call.installation())
    return Reply(204)


@routes.add("PUT", "/app/installations/{installation_id}/suspended", who="app")
def suspend(call: Call) -> Reply:
    call.parts.accounts.suspend(call.installation())
    return Reply(204)


@routes.add("DELETE", "/app/installations/{installation_id}/suspended", who="app")
def unsuspend(call: Call) -> Reply:
    call.parts.accounts.unsuspend(call.installation())
    return Reply(204)


@routes.add("POST", "/app/installations/{installation_id}/access_tokens", who="app")
def access_token(call: Call) -> Reply:
    of = call.installation()
    if of.suspended_at is not None:
        raise answers.suspended()
    body = call.body()
    permissions = body.get("permissions")
    if permissions is not None:
        lacking = [name for name in permissions if name not in of.permissions]
        if lacking:
            raise answers.invalid("The permissions requested are not granted to this installation.")
    chosen = _chosen(call, of)
    token = call.parts.auth.issue(
        of,
        permissions=permissions,
        repositories=None if chosen is None else [repository.id for repository in chosen],
    )
    covered = chosen if chosen is not None else call.parts.accounts.covered(of)
    return Reply(201, payloads.token(call.world, token, covered))


def _chosen(call: Call, of: Installation) -> list[Repository] | None:
    """The repositories of a narrower token; None: the token is not narrowed."""
    names, numbers = call.body().get("repositories"), call.body().get("repository_ids")
    if names is None and numbers is None:
        return None
    chosen = [
        repository
        for repository in call.parts.accounts.covered(of)
        if repository.name in (names or ()) or repository.id in (numbers or ())
    ]
    if len(chosen) < len(set(names or ())) + len(set(numbers or ())):
        raise answers.invalid(
            "There is at least one repository that does not exist or is not accessible to the "
            "parent installation."
        )
    return chosen


def _installed(call: Call, login: str, repository: Repository | None = None) -> Reply:
    for one in call.world.installations.values():
        if (
            one.app is call.app
            and not one.removed
            and one.account.login.lower() == login.lower()
            and (repository is None or one.covers(repository))
        ):
            return Reply(200, payloads.installation(call.world, one))
    raise answers.not_found()


@routes.add("GET", "/orgs/{org}/installation", who="app")
def organization_installation(call: Call) -> Reply:
    return _installed(call, call.params["org"])


@routes.add("GET", "/users/{username}/installation", who="app")
def user_installation(call: Call) -> Reply:
    return _installed(call, call.params["username"])


@routes.add("GET", "/repos/{owner}/{repo}/installation", who="app")
def repository_installation(call: Call) -> Reply:
    repository = call.world.repository(f"{call.params['owner']}/{call.params['repo']}")
    if repository is None:
        raise answers.not_found()
    return _installed(call, repository.owner.login, repository)


@routes.add("GET", "/app/hook/deliveries", who="app")
def deliveries(call: Call) -> Reply:
    """Newest first. The cursor is opaque; it is the id of the last delivery of the page before."""
    query = call.request.query
    listed = call.parts.hooks.listed(call.app)
    match query.get("status"):
        case "success":
            listed = [one for one in listed if 200 <= (one.status_code or 0) < 400]
        case "failure":
            listed = [one for one in listed if not 200 <= (one.status_code or 0) < 400]
        case _:
            pass
    cursor = query.get("cursor")
    if cursor is not None:
        if not cursor.startswith("v1_") or not cursor[3:].isdigit():
            raise answers.invalid("Invalid cursor")
        listed = [one for one in listed if one.id < int(cursor[3:])]
    page, _ = call.page(listed)
    more = len(listed) > len(page)
    headers = call.link({"next": {"cursor": f"v1_{page[-1].id}"}} if more else {})
    return Reply(200, [payloads.delivery(one) for one in page], headers)


def _delivery(call: Call) -> Delivery:
    found = call.world.deliveries.get(call.number("delivery_id"))
    if found is None or found.app is not call.app or found.status_code is None:
        raise answers.not_found()
    return found


@routes.add("GET", "/app/hook/deliveries/{delivery_id}", who="app")
def delivery(call: Call) -> Reply:
    return Reply(200, payloads.full_delivery(_delivery(call)))


@routes.add("POST", "/app/hook/deliveries/{delivery_id}/attempts", who="app")
def redeliver(call: Call) -> Reply:
    call.parts.hooks.redeliver(_delivery(call))
    return Reply(202, {})


@routes.add("GET", "/installation/repositories")
def installation_repositories(call: Call) -> Reply:
    covered = call.parts.accounts.covered(call.token.installation)
    if call.token.repositories is not None:
        covered = [one for one in covered if one.id in call.token.repositories]
    page, headers = call.page(covered)
    body = {
        "total_count": len(covered),
        "repository_selection": call.token.installation.selection,
        "repositories": [payloads.repository(call.world, one) for one in page],
    }
    return Reply(200, body, headers)


@routes.add("DELETE", "/installation/token")
def revoke_token(call: Call) -> Reply:
    del call.world.tokens[call.token.value]
    return Reply(204)


@routes.add("GET", "/rate_limit")
def rate_limit(call: Call) -> Reply:
    core = call.parts.limits.bucket(CORE, call.token.installation)
    mint = call.parts.limits.bucket(MINT, call.token.installation)
    body = {
        "resources": {"core": core.report(), "search": core.report(), MINT: mint.report()},
        "rate": core.report(),
    }
    return Reply(200, body, core.headers())
