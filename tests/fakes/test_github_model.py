"""The fake GitHub does what docs/github.md says GitHub does, and fails in the ways it fails."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any
from urllib.parse import parse_qs

import jwt
import msgspec
import pytest

from paddock.fakes.github import FaultKind, Faults, JobSpec, Quotas, Request, Timing
from paddock.fakes.github.jobs import LOST_COMMUNICATION
from paddock.fakes.github.keys import make_private_key, public_half
from paddock.fakes.github.runners import (
    Cancellation,
    JobGoneError,
    Offer,
    RegistrationDeletedError,
    SessionConflictError,
    VersionDeprecatedError,
)
from paddock.fakes.github.truth import Ending
from tests.fakes.scene import Scene

_MINT = "/orgs/octo-org/actions/runners/generate-jitconfig"
_REPO = "/repos/octo-org/hello"


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture(scope="module")
def private_key() -> str:
    return make_private_key()


class TestAuthentication:
    def _as_app(self, scene: Scene, key: str, **claims: Any) -> int:
        scene.app.public_keys = (public_half(key),)
        now = int(scene.clock.time.timestamp())
        default = {"iss": str(scene.app.id), "iat": now - 60, "exp": now + 540}
        token = jwt.encode(default | claims, key, algorithm="RS256")
        reply = scene.call("GET", "/app", token=token)
        assert reply.status == 200 or reply.body["message"]
        return reply.status

    def test_an_app_is_known_by_its_id_or_its_client_id(
        self, scene: Scene, private_key: str
    ) -> None:
        assert self._as_app(scene, private_key) == 200
        assert self._as_app(scene, private_key, iss=scene.app.client_id) == 200
        assert self._as_app(scene, private_key, iss="4711") == 404

    def test_a_jwt_is_good_for_ten_minutes_at_most(self, scene: Scene, private_key: str) -> None:
        now = int(scene.clock.time.timestamp())
        assert self._as_app(scene, private_key, exp=now + 600) == 200
        assert self._as_app(scene, private_key, exp=now + 601) == 401
        assert self._as_app(scene, private_key, exp=now) == 401

    def test_a_jwt_from_the_future_is_refused(self, scene: Scene, private_key: str) -> None:
        now = int(scene.clock.time.timestamp())
        assert self._as_app(scene, private_key, iat=now + 1) == 401

    def test_a_jwt_signed_with_another_key_or_another_way_is_refused(
        self, scene: Scene, private_key: str
    ) -> None:
        scene.app.public_keys = (public_half(private_key),)
        now = int(scene.clock.time.timestamp())
        claims = {"iss": str(scene.app.id), "iat": now, "exp": now + 60}
        for token in (
            jwt.encode(claims, make_private_key(), algorithm="RS256"),
            jwt.encode(claims, "x" * 32, algorithm="HS256"),
            "rubbish",
        ):
            assert scene.call("GET", "/app", token=token).status == 401

    def test_both_keys_are_good_while_they_are_rotated(
        self, scene: Scene, private_key: str
    ) -> None:
        assert self._as_app(scene, private_key) == 200
        second = make_private_key()
        scene.app.public_keys = (public_half(second), *scene.app.public_keys)
        now = int(scene.clock.time.timestamp())
        claims = {"iss": str(scene.app.id), "iat": now, "exp": now + 60}
        for key in (private_key, second):
            token = jwt.encode(claims, key, algorithm="RS256")
            assert scene.call("GET", "/app", token=token).status == 200

    def test_a_token_expires_after_an_hour(self, scene: Scene) -> None:
        token = scene.github.token_for(scene.installation)
        scene.passes(3599)
        assert scene.call("GET", "/installation/repositories", token=token).status == 200
        scene.passes(1)
        assert scene.call("GET", "/installation/repositories", token=token).status == 401

    def test_a_revoked_token_and_one_of_a_removed_installation_are_refused(
        self, scene: Scene
    ) -> None:
        token = scene.github.token_for(scene.installation)
        assert scene.call("DELETE", "/installation/token", token=token).status == 204
        assert scene.call("GET", "/rate_limit", token=token).status == 401
        token = scene.github.token_for(scene.installation)
        scene.github.accounts.uninstall(scene.installation)
        assert scene.call("GET", "/rate_limit", token=token).status == 401

    def test_a_suspended_installation_answers_404_to_everything(self, scene: Scene) -> None:
        token = scene.github.token_for(scene.installation)
        scene.github.accounts.suspend(scene.installation)
        for path in ("/installation/repositories", "/orgs/octo-org/actions/runners", _REPO):
            assert scene.call("GET", path, token=token).status == 404

    def test_a_suspended_installation_gets_no_tokens(self, scene: Scene, private_key: str) -> None:
        assert self._as_app(scene, private_key) == 200
        scene.github.accounts.suspend(scene.installation)
        now = int(scene.clock.time.timestamp())
        claims = {"iss": str(scene.app.id), "iat": now, "exp": now + 60}
        token = jwt.encode(claims, private_key, algorithm="RS256")
        path = f"/app/installations/{scene.installation.id}/access_tokens"
        reply = scene.call("POST", path, token=token)
        assert (reply.status, reply.body["message"]) == (
            403,
            "This installation has been suspended",
        )


class TestMinting:
    def test_the_configuration_has_the_real_layout(self, scene: Scene) -> None:
        reply = scene.mint("r1", "linux", "x64")
        files = {
            name: json.loads(base64.b64decode(content))
            for name, content in json.loads(
                base64.b64decode(reply.body["encoded_jit_config"])
            ).items()
        }
        assert set(files) == {".runner", ".credentials", ".credentials_rsaparams"}
        assert files[".runner"]["AgentName"] == "r1"
        assert files[".runner"]["Ephemeral"] == "True"
        assert files[".runner"]["GitHubUrl"].endswith("/octo-org")
        assert files[".credentials"]["Scheme"] == "OAuth"
        assert len(base64.b64decode(files[".credentials_rsaparams"]["modulus"])) == 256

    def test_a_minted_runner_is_offline_with_exactly_its_labels(self, scene: Scene) -> None:
        runner = scene.mint("r1", "linux").body["runner"]
        assert (runner["status"], runner["busy"]) == ("offline", False)
        assert [label["name"] for label in runner["labels"]] == ["linux"]

    def test_a_name_is_taken_within_its_scope_until_its_record_is_gone(self, scene: Scene) -> None:
        runner = scene.runner("r1")
        assert scene.mint("R1").status == 409
        assert scene.mint("r1", scope="octo-org/hello").status == 201
        assert scene.delete_runner(runner).status == 204
        assert scene.mint("r1").status == 201

    @pytest.mark.parametrize(
        ("wrong", "status"),
        [
            ({"name": ""}, 422),
            ({"name": "x" * 65}, 422),
            ({"labels": []}, 422),
            ({"labels": ["x"] * 101}, 422),
            ({"runner_group_id": None}, 422),
            ({"runner_group_id": 99}, 404),
        ],
    )
    def test_an_invalid_request_mints_nothing(
        self, scene: Scene, wrong: dict[str, Any], status: int
    ) -> None:
        body = {"name": "r1", "runner_group_id": 1, "labels": ["linux"]} | wrong
        assert scene.call("POST", _MINT, body).status == status
        assert not scene.github.truth.mints

    def test_permissions_decide(self, scene: Scene) -> None:
        scene.installation.permissions["organization_self_hosted_runners"] = "read"
        reply = scene.mint()
        assert (reply.status, reply.body["message"]) == (
            403,
            "Resource not accessible by integration",
        )

    def test_a_repository_outside_the_selection_is_refused_or_unknown(self, scene: Scene) -> None:
        scene.github.accounts.select_repositories(scene.installation, [])
        assert scene.mint(scope="octo-org/hello").status == 403
        assert scene.call("GET", f"{_REPO}/actions/runs").status == 404

    def test_settings_of_the_repository_and_the_organisation_refuse(self, scene: Scene) -> None:
        scene.repository.runners_disabled = True
        assert (
            "self-hosted runners are disabled" in scene.mint(scope="octo-org/hello").body["message"]
        )
        scene.repository.actions_disabled = True
        assert "Actions is disabled" in scene.mint(scope="octo-org/hello").body["message"]
        scene.organization.ip_not_permitted = True
        assert "IP address is not permitted" in scene.mint().body["message"]

    def test_a_full_group_takes_no_more(self) -> None:
        scene = Scene(quotas=Quotas(runners_per_group=2))
        scene.runner("r1")
        scene.runner("r2")
        reply = scene.mint("r3")
        assert reply.status == 422
        assert "has reached max limit of 2 runners" in reply.body["message"]

    def test_a_user_has_repositories_but_no_organisation(self, scene: Scene) -> None:
        user = scene.github.accounts.add_user("octocat")
        scene.github.accounts.add_repository(user, "dotfiles")
        installation = scene.github.accounts.install(scene.app, user)
        body = {"name": "r1", "runner_group_id": 1, "labels": ["linux"]}
        for place, status in (("/orgs/octocat", 404), ("/repos/octocat/dotfiles", 201)):
            path = f"{place}/actions/runners/generate-jitconfig"
            assert scene.call("POST", path, body, installation=installation).status == status

    def test_a_record_that_never_ran_goes_within_a_day(self, scene: Scene) -> None:
        runner = scene.runner()
        scene.passes(86_399)
        assert scene.get_runner(runner).status == 200
        scene.passes(1)
        assert scene.get_runner(runner).status == 404


class TestAssignment:
    def test_a_job_goes_to_any_runner_that_covers_its_labels(self, scene: Scene) -> None:
        takers = set()
        for number in range(20):
            one = scene.online(f"a{number}", "linux", "x64")
            other = scene.online(f"b{number}", "linux", "gpu")
            job = scene.queue("Linux")
            taker = next(s for s in (one, other) if scene.github.runners.poll(s) is not None)
            takers.add(taker == one)
            for session in (one, other):
                scene.github.runners.disconnect(session)
            scene.github.jobs.cancel(job)
        assert takers == {True, False}

    def test_a_runner_without_one_of_the_labels_gets_nothing(self, scene: Scene) -> None:
        session = scene.online("r1", "linux")
        scene.queue("linux", "gpu")
        assert scene.github.runners.poll(session) is None

    def test_the_oldest_job_goes_first(self, scene: Scene) -> None:
        first, second = scene.queue("linux"), scene.queue("linux", "x64")
        session = scene.online("r1", "linux", "x64")
        assert scene.github.runners.poll(session) == Offer(first.id)
        assert scene.github.runners.poll(scene.online("r2", "linux", "x64")) == Offer(second.id)

    def test_a_repositorys_runner_serves_that_repository_alone(self, scene: Scene) -> None:
        other = scene.github.accounts.add_repository(scene.organization, "other")
        session = scene.online("r1", scope="octo-org/hello")
        scene.queue(repository=other)
        assert scene.github.runners.poll(session) is None
        job = scene.queue()
        assert scene.github.runners.poll(session) == Offer(job.id)

    def test_accounts_do_not_serve_one_another(self, scene: Scene) -> None:
        stranger = scene.github.accounts.add_organization("stranger")
        theirs = scene.github.accounts.add_repository(stranger, "theirs")
        session = scene.online()
        scene.queue(repository=theirs)
        assert scene.github.runners.poll(session) is None

    def test_a_group_admits_only_its_repositories(self, scene: Scene) -> None:
        other = scene.github.accounts.add_repository(scene.organization, "other")
        group = scene.github.accounts.add_group(
            scene.organization, "builders", repositories=[other]
        )
        session = scene.online("r1", group=group.id)
        job = scene.queue()
        assert scene.github.runners.poll(session) is None
        scene.github.accounts.set_group_repositories(group, [scene.repository])
        assert scene.github.runners.poll(session) == Offer(job.id)

    def test_foreign_runners_take_our_jobs(self, scene: Scene) -> None:
        group = scene.github.world.groups[scene.organization.id][0]
        foreign = scene.github.runners.add_foreign(
            scene.organization, name="old-box", group=group, labels=["linux"]
        )
        job = scene.queue(seconds=30)
        assert job.runner is foreign
        scene.passes(30)
        assert job.conclusion == "success"
        assert scene.get_runner(foreign).body["busy"] is False

    def test_foreign_jobs_land_on_our_runners_without_a_word(self, scene: Scene) -> None:
        other = scene.github.accounts.add_repository(scene.organization, "other")
        scene.github.accounts.select_repositories(scene.installation, [scene.repository])
        scene.webhooks()
        session = scene.online()
        job = scene.queue(repository=other)
        scene.github.runners.acquire(session, job.id)
        assert job.runner is not None
        assert scene.github.truth.executors() == {job.runner.id: job.id}
        assert scene.webhooks() == []

    def test_a_waiting_job_is_given_to_no_runner_until_it_is_approved(self, scene: Scene) -> None:
        session = scene.online()
        job = scene.queue(gated=True)
        assert scene.github.runners.poll(session) is None
        assert [action for _, action, _ in scene.webhooks()] == ["waiting"]
        scene.github.jobs.approve(job)
        assert scene.github.runners.poll(session) == Offer(job.id)
        assert [action for _, action, _ in scene.webhooks()] == ["queued"]

    def test_assignment_takes_as_long_as_it_is_told(self) -> None:
        scene = Scene(faults=Faults(assign_delay=(5.0, 5.0)))
        session = scene.online()
        job = scene.queue()
        scene.passes(4.9)
        assert scene.github.runners.poll(session) is None
        scene.passes(0.1)
        assert scene.github.runners.poll(session) == Offer(job.id)

    def test_a_job_that_is_not_fetched_goes_to_another_runner(self, scene: Scene) -> None:
        dead = scene.online("dead")
        job = scene.queue()
        assert scene.github.runners.poll(dead) == Offer(job.id)
        alive = scene.online("alive")
        scene.passes(60)
        assert scene.github.runners.poll(alive) == Offer(job.id)
        with pytest.raises(JobGoneError):
            scene.github.runners.acquire(dead, job.id)

    def test_a_silent_runner_is_offline_and_gets_nothing(self, scene: Scene) -> None:
        runner = scene.runner()
        scene.connect(runner)
        assert scene.get_runner(runner).body["status"] == "online"
        scene.passes(90)
        assert scene.get_runner(runner).body["status"] == "offline"
        scene.queue()
        assert runner.offered is None


class TestLife:
    def test_offline_online_busy_gone(self, scene: Scene) -> None:
        runner = scene.runner()
        job = scene.queue()
        assert scene.get_runner(runner).body["status"] == "offline"
        session = scene.connect(runner)
        scene.github.runners.acquire(session, job.id)
        body = scene.get_runner(runner).body
        assert (body["status"], body["busy"]) == ("online", True)
        scene.github.runners.complete(session, job.id, "success")
        assert scene.get_runner(runner).status == 404
        assert scene.call("GET", "/orgs/octo-org/actions/runners").body["total_count"] == 0

    def test_the_webhooks_of_a_life_name_the_executor_from_in_progress_on(
        self, scene: Scene
    ) -> None:
        runner, session, job = scene.busy()
        scene.github.runners.complete(session, job.id, "failure")
        sent = [(action, body["workflow_job"]["runner_id"]) for _, action, body in scene.webhooks()]
        assert sent == [("queued", None), ("in_progress", runner.id), ("completed", runner.id)]

    def test_a_run_with_one_started_job_is_in_progress_while_others_are_queued(
        self, scene: Scene
    ) -> None:
        run = scene.github.jobs.queue_run(
            scene.repository, [JobSpec(labels=("linux",), name=f"m ({n})") for n in range(3)]
        )
        session = scene.online()
        scene.github.runners.acquire(session, run.jobs[0].id)
        listed = scene.call("GET", f"{_REPO}/actions/runs", query={"status": "in_progress"}).body
        assert [one["id"] for one in listed["workflow_runs"]] == [run.id]
        jobs = scene.call("GET", f"{_REPO}/actions/runs/{run.id}/jobs").body["jobs"]
        assert [job["status"] for job in jobs] == ["in_progress", "queued", "queued"]

    def test_a_matrix_has_256_jobs_at_most(self, scene: Scene) -> None:
        with pytest.raises(ValueError, match="at most 256"):
            scene.github.jobs.queue_run(scene.repository, [JobSpec()] * 257)

    def test_a_job_cancelled_in_the_queue_has_no_runner_or_runner_zero(self, scene: Scene) -> None:
        runners = set()
        for _ in range(20):
            scene.github.jobs.cancel(scene.queue("unserved"))
        for _, action, body in scene.webhooks():
            if action == "completed":
                assert body["workflow_job"]["conclusion"] == "cancelled"
                runners.add(body["workflow_job"]["runner_id"])
        assert runners == {None, 0}

    def test_a_running_job_is_cancelled_by_its_runner(self, scene: Scene) -> None:
        _, session, job = scene.busy()
        scene.github.jobs.cancel(job)
        assert job.conclusion is None
        assert scene.github.runners.poll(session) == Cancellation(job.id)
        scene.github.runners.complete(session, job.id, "cancelled")
        assert job.conclusion == "cancelled"

    def test_a_cancellation_without_an_answer_ends_by_itself(self, scene: Scene) -> None:
        _, _, job = scene.busy()
        scene.github.jobs.cancel(job)
        scene.passes(300)
        assert (job.conclusion, job.annotation) == ("cancelled", LOST_COMMUNICATION)

    def test_a_cancelled_offer_frees_its_runner(self, scene: Scene) -> None:
        session = scene.online()
        scene.github.jobs.cancel(scene.queue())
        again = scene.queue()
        assert scene.github.runners.poll(session) == Offer(again.id)

    def test_a_rerun_has_new_job_ids(self, scene: Scene) -> None:
        _, session, job = scene.busy()
        scene.github.runners.complete(session, job.id, "failure")
        scene.installation.permissions["actions"] = "write"
        path = f"{_REPO}/actions/runs/{job.run.id}/rerun-failed-jobs"
        assert scene.call("POST", path).status == 201
        again = job.run.latest[0]
        assert (again.id == job.id, again.attempt, job.run.status) == (False, 2, "queued")

    def test_a_job_that_no_runner_takes_is_cancelled_after_a_day(self, scene: Scene) -> None:
        job = scene.queue("unserved")
        scene.passes(86_400)
        assert job.conclusion == "cancelled"

    def test_a_jit_cannot_be_used_twice(self, scene: Scene) -> None:
        runner, session, job = scene.busy()
        with pytest.raises(SessionConflictError):
            scene.connect(runner)
        scene.github.runners.complete(session, job.id, "success")
        with pytest.raises(RegistrationDeletedError):
            scene.connect(runner)

    def test_a_deprecated_version_connects_and_gets_no_job(self, scene: Scene) -> None:
        scene.github.world.deprecated_versions.add("2.330.0")
        session = scene.connect(scene.runner())
        job = scene.queue()
        with pytest.raises(VersionDeprecatedError):
            scene.github.runners.poll(session)
        assert job.status == "queued"

    def test_a_version_deprecated_while_it_waits_loses_its_offer(self, scene: Scene) -> None:
        session, job = scene.online("r1"), scene.queue()
        scene.github.world.deprecated_versions.add("2.330.0")
        with pytest.raises(VersionDeprecatedError):
            scene.github.runners.poll(session)
        scene.github.world.deprecated_versions.clear()
        scene.online("r2")
        scene.passes(1)
        assert job.status == "queued"
        assert [r.name for r in scene.github.world.runners.values() if r.offered is job] == ["r2"]

    def test_a_version_deprecated_during_its_job_finishes_it(self, scene: Scene) -> None:
        runner, session, job = scene.busy()
        scene.github.world.deprecated_versions.add("2.330.0")
        assert scene.github.runners.poll(session) is None
        scene.github.runners.complete(session, job.id, "success")
        assert (job.conclusion, runner.job) == ("success", None)


class TestLease:
    def test_a_silent_death_is_busy_for_ten_minutes_and_then_lost(self, scene: Scene) -> None:
        runner, _, job = scene.busy()
        scene.github.runners.died(runner.id)
        scene.passes(599)
        body = scene.get_runner(runner).body
        assert (body["status"], body["busy"], job.status) == ("offline", True, "in_progress")
        assert scene.delete_runner(runner).status == 422
        scene.passes(1)
        assert (job.status, job.conclusion) == ("completed", "failure")
        assert job.annotation == LOST_COMMUNICATION
        scene.passes(300)
        assert scene.get_runner(runner).status == 404
        execution = scene.github.truth.executions_of(job.id)[0]
        assert execution.how is Ending.DIED

    def test_renewing_keeps_the_job(self, scene: Scene) -> None:
        _, session, job = scene.busy()
        for _ in range(100):
            scene.passes(60)
            scene.github.runners.renew(session, job.id)
        assert job.status == "in_progress"

    def test_a_runner_that_comes_back_too_late_is_told_so(self, scene: Scene) -> None:
        _, session, job = scene.busy()
        scene.passes(600)
        with pytest.raises(JobGoneError):
            scene.github.runners.complete(session, job.id, "success")
        assert scene.github.truth.executions_of(job.id)[0].how is Ending.LOST


class TestBusyIsNotALock:
    def test_a_busy_runner_is_not_deleted(self, scene: Scene) -> None:
        runner, _, _ = scene.busy()
        reply = scene.delete_runner(runner)
        assert reply.status == 422
        assert "is still running a job" in reply.body["message"]

    def test_busy_is_seen_up_to_a_minute_late_and_delete_believes_it(self) -> None:
        scene = Scene(faults=Faults(busy_unseen=1.0, busy_unseen_for=(60.0, 60.0)))
        runner, session, job = scene.busy()
        scene.passes(59)
        assert scene.get_runner(runner).body["busy"] is False
        assert scene.delete_runner(runner).status == 204
        deletion = scene.github.truth.deletions[-1]
        assert (deletion.name, deletion.executing) == ("r1", job.id)

        # The job goes on, renews and completes; only the record is gone.
        scene.github.runners.renew(session, job.id)
        assert scene.github.truth.executing(runner.id) == job.id
        scene.github.runners.complete(session, job.id, "success")
        assert job.conclusion == "success"

    def test_busy_is_seen_when_the_lag_is_over(self) -> None:
        scene = Scene(faults=Faults(busy_unseen=1.0, busy_unseen_for=(60.0, 60.0)))
        runner, _, _ = scene.busy()
        scene.passes(60)
        assert scene.get_runner(runner).body["busy"] is True
        assert scene.delete_runner(runner).status == 422

    def test_a_deletion_is_wrongly_granted_on_demand(self, scene: Scene) -> None:
        runner, _, job = scene.busy()
        scene.github.inject(FaultKind.BUSY_DELETED)
        assert scene.delete_runner(runner).status == 204
        assert scene.github.truth.executing(runner.id) == job.id

    def test_one_answer_lies_on_demand(self, scene: Scene) -> None:
        runner, _, _ = scene.busy()
        scene.github.inject(FaultKind.BUSY_UNSEEN)
        assert scene.get_runner(runner).body["busy"] is False
        assert scene.get_runner(runner).body["busy"] is True

    def test_deleting_a_runner_before_it_fetched_gives_the_job_to_another(
        self, scene: Scene
    ) -> None:
        session = scene.online("r1")
        job = scene.queue()
        scene.github.inject(FaultKind.BUSY_DELETED)
        runner = scene.github.runner_named("r1")
        assert runner is not None
        assert scene.delete_runner(runner).status == 204
        with pytest.raises(RegistrationDeletedError):
            scene.github.runners.poll(session)
        assert scene.github.runners.poll(scene.online("r2")) == Offer(job.id)

    def test_an_unknown_runner_and_one_of_another_scope_are_404(self, scene: Scene) -> None:
        runner = scene.runner(scope="octo-org/hello")
        assert scene.delete_runner(runner).status == 404
        assert scene.call("DELETE", f"{_REPO}/actions/runners/{runner.id}").status == 204
        assert scene.call("DELETE", f"{_REPO}/actions/runners/{runner.id}").status == 404


class TestWebhooks:
    def test_they_are_signed_over_the_raw_body(self, scene: Scene) -> None:
        scene.queue()
        (outgoing,) = scene.github.hooks.take()
        digest = hmac.new(b"secret", outgoing.body, hashlib.sha256).hexdigest()
        assert outgoing.headers["X-Hub-Signature-256"] == f"sha256={digest}"
        assert outgoing.headers["X-GitHub-Hook-Installation-Target-ID"] == str(scene.app.id)

    def test_a_form_carries_the_same_payload(self, scene: Scene) -> None:
        scene.app.webhook_form = True
        job = scene.queue()
        (outgoing,) = scene.github.hooks.take()
        assert outgoing.headers["Content-Type"] == "application/x-www-form-urlencoded"
        payload = json.loads(parse_qs(outgoing.body.decode())["payload"][0])
        assert payload["workflow_job"]["id"] == job.id

    def test_every_app_gets_its_own(self, scene: Scene) -> None:
        second = scene.github.accounts.add_app("second", webhook_secret="other")
        scene.github.accounts.install(second, scene.organization)
        scene.github.hooks.take()
        scene.queue()
        sent = scene.github.hooks.take()
        targets = [one.headers["X-GitHub-Hook-Installation-Target-ID"] for one in sent]
        assert targets == [str(scene.app.id), str(second.id)]
        assert len({one.headers["X-GitHub-Delivery"] for one in sent}) == 2

    def test_a_suspended_installation_hears_nothing_of_jobs(self, scene: Scene) -> None:
        scene.github.accounts.suspend(scene.installation)
        scene.queue()
        assert [(event, action) for event, action, _ in scene.webhooks()] == [
            ("installation", "suspend")
        ]

    def test_a_lost_one_is_neither_sent_nor_listed(self) -> None:
        scene = Scene()
        scene.github.set_faults(Faults(hook_lost=1.0))
        before = len(scene.github.world.deliveries)
        job = scene.queue()
        assert scene.webhooks() == []
        assert len(scene.github.world.deliveries) == before
        assert list(scene.github.truth.unsent) == [("workflow_job", "queued", job.id)]

    def test_a_failed_one_is_listed_and_redelivered_under_its_guid(
        self, scene: Scene, private_key: str
    ) -> None:
        scene.github.set_faults(Faults(hook_failed=1.0))
        job = scene.queue()
        assert scene.webhooks() == []
        scene.github.set_faults(Faults())
        failed = self._deliveries(scene, private_key, status="failure")
        assert [one["status_code"] for one in failed] == [502]

        path = f"/app/hook/deliveries/{failed[0]['id']}/attempts"
        assert scene.call("POST", path, token=self._jwt(scene, private_key)).status == 202
        ((_, action, payload),) = scene.webhooks()
        assert (action, payload["workflow_job"]["id"]) == ("queued", job.id)
        newest, *_ = self._deliveries(scene, private_key)
        assert newest["guid"] == failed[0]["guid"]
        assert newest["id"] != failed[0]["id"]
        assert (newest["redelivery"], newest["status"]) == (True, "OK")

    def test_what_the_receiver_answers_is_listed(self, scene: Scene, private_key: str) -> None:
        scene.github.hooks.sink = lambda _outgoing: 503
        scene.queue()
        newest, *_ = self._deliveries(scene, private_key, status="failure")
        assert newest["status_code"] == 503

    def _jwt(self, scene: Scene, key: str) -> str:
        scene.app.public_keys = (public_half(key),)
        now = int(scene.clock.time.timestamp())
        claims = {"iss": str(scene.app.id), "iat": now, "exp": now + 60}
        return jwt.encode(claims, key, algorithm="RS256")

    def _deliveries(self, scene: Scene, key: str, **query: str) -> list[dict[str, Any]]:
        reply = scene.call("GET", "/app/hook/deliveries", query=query, token=self._jwt(scene, key))
        assert isinstance(reply.body, list)
        return reply.body

    def test_a_doubled_one_has_one_guid(self, scene: Scene) -> None:
        scene.github.set_faults(Faults(hook_doubled=1.0))
        scene.queue()
        guids = [one.headers["X-GitHub-Delivery"] for one in scene.github.hooks.take()]
        assert len(guids) == 2
        assert len(set(guids)) == 1

    def test_delay_and_reordering(self) -> None:
        faults = Faults(hook_delay=(1.0, 1.0), hook_held_back=0.5, hook_held_back_for=(10.0, 30.0))
        scene = Scene(seed=3, faults=faults)
        scene.passes(60)
        scene.webhooks()
        jobs = [scene.queue("unserved").id for _ in range(10)]
        assert scene.webhooks() == []
        scene.passes(60)
        arrived = [body["workflow_job"]["id"] for _, _, body in scene.webhooks()]
        assert sorted(arrived) == jobs
        assert arrived != jobs


class TestLimits:
    def test_an_installation_has_its_quota_and_gets_it_back(self) -> None:
        scene = Scene(quotas=Quotas(core=2))
        replies = [scene.call("GET", "/orgs/octo-org/actions/runners") for _ in range(3)]
        assert [reply.status for reply in replies] == [200, 200, 403]
        refused = replies[-1]
        assert "API rate limit exceeded" in refused.body["message"]
        assert refused.headers["x-ratelimit-remaining"] == "0"
        reset = int(refused.headers["x-ratelimit-reset"])
        scene.passes(reset - scene.clock.time.timestamp())
        assert scene.call("GET", "/orgs/octo-org/actions/runners").status == 200

    def test_minting_has_a_bucket_of_its_own(self) -> None:
        scene = Scene(quotas=Quotas(core=1, mint=2))
        assert scene.call("GET", "/orgs/octo-org/actions/runners").status == 200
        assert [scene.mint(f"r{number}").status for number in range(3)] == [201, 201, 403]

    def test_the_secondary_limit_says_when_to_come_back(self) -> None:
        scene = Scene(quotas=Quotas(points_per_minute=12))
        replies = [scene.mint(f"r{number}") for number in range(3)]
        assert [reply.status for reply in replies] == [201, 201, 403]
        assert "secondary rate limit" in replies[-1].body["message"]
        scene.passes(int(replies[-1].headers["retry-after"]))
        assert scene.mint("r9").status == 201

    def test_180_mints_in_a_burst_are_all_that_one_installation_may(self, scene: Scene) -> None:
        statuses = [scene.mint(f"r{number}").status for number in range(181)]
        assert statuses == [201] * 180 + [403]

    def test_each_installation_is_counted_by_itself(self) -> None:
        scene = Scene(quotas=Quotas(mint=1, points_per_minute=12))
        assert [scene.mint(f"r{number}").status for number in range(2)] == [201, 403]
        accounts = scene.github.accounts
        other = accounts.install(scene.app, accounts.add_organization("other-org"))
        body = {"name": "r3", "runner_group_id": 1, "labels": ["linux"]}
        path = "/orgs/other-org/actions/runners/generate-jitconfig"
        assert scene.call("POST", path, body, installation=other).status == 201


class TestFaults:
    def test_a_whole_scope_answers_404_for_a_while(self, scene: Scene) -> None:
        runner = scene.runner()
        scene.github.inject(FaultKind.NOT_FOUND, owner="octo-org", times=None, seconds=60)
        assert scene.get_runner(runner).status == 404
        assert scene.call("GET", _REPO).status == 404
        scene.passes(60)
        assert scene.get_runner(runner).status == 200

    def test_a_lost_request_did_nothing(self, scene: Scene) -> None:
        scene.github.inject(FaultKind.REQUEST_LOST, route="mint_organization")
        assert scene.mint("r1").lost
        assert not scene.github.truth.mints
        assert scene.mint("r1").status == 201

    def test_a_lost_reply_did_what_was_asked(self, scene: Scene) -> None:
        """The name is taken, and the record is found by it."""
        scene.github.inject(FaultKind.REPLY_LOST, route="mint_organization")
        assert scene.mint("r1").lost
        assert [mint.name for mint in scene.github.truth.mints] == ["r1"]
        assert scene.mint("r1").status == 409
        found = scene.call("GET", "/orgs/octo-org/actions/runners", query={"name": "r1"}).body
        assert [runner["name"] for runner in found["runners"]] == ["r1"]

    def test_a_fault_hits_what_it_names_and_no_more_often_than_it_says(self, scene: Scene) -> None:
        scene.github.inject(FaultKind.UNAVAILABLE, route="mint_organization", times=2)
        assert scene.call("GET", "/orgs/octo-org/actions/runners").status == 200
        assert [scene.mint("r1").status for _ in range(3)] == [503, 503, 201]

    def test_an_endless_fault_is_refused(self, scene: Scene) -> None:
        with pytest.raises(ValueError, match="without an end"):
            scene.github.inject(FaultKind.NOT_FOUND, times=None)

    def test_chances_are_kept(self) -> None:
        scene = Scene(faults=Faults(server_error=0.5))
        statuses = [scene.call("GET", "/orgs/octo-org/actions/runners").status for _ in range(200)]
        failed = [status for status in statuses if status >= 500]
        assert 60 < len(failed) < 140
        assert set(failed) == {500, 502, 503}

    def test_latency_travels_with_the_reply(self) -> None:
        scene = Scene(faults=Faults(latency=(0.2, 0.4)))
        assert 0.2 <= scene.mint().latency <= 0.4

    def test_an_unknown_address_is_404(self, scene: Scene) -> None:
        assert scene.call("GET", "/nowhere").status == 404


_EVERYTHING = Faults(
    hook_lost=0.1,
    hook_failed=0.1,
    hook_doubled=0.1,
    hook_delay=(0.0, 2.0),
    hook_held_back=0.2,
    latency=(0.0, 1.0),
    request_lost=0.05,
    reply_lost=0.05,
    server_error=0.05,
    assign_delay=(0.0, 3.0),
    busy_unseen=0.3,
    busy_deleted=0.1,
)


def _trace(seed: int, faults: Faults) -> list[Any]:
    scene = Scene(seed=seed, faults=faults, timing=Timing(lease=60.0))
    trace: list[Any] = []
    for number in range(30):
        reply = scene.mint(f"r{number}")
        trace.append((reply.status, reply.lost, reply.latency, reply.body))
        scene.queue()
        runner = scene.github.runner_named(f"r{number}")
        if runner is not None:
            session = scene.connect(runner)
            scene.passes(4)
            offer = scene.github.runners.poll(session)
            if isinstance(offer, Offer):
                scene.github.runners.acquire(session, offer.job_id)
                if number % 3:
                    scene.github.runners.complete(session, offer.job_id, "success")
        scene.passes(7)
        trace.append([(one.headers, one.body) for one in scene.github.hooks.take()])
    scene.passes(3600)
    trace.append([(one.headers, one.body) for one in scene.github.hooks.take()])
    trace.append(list(scene.github.truth.executions))
    return trace


def test_the_same_seed_and_the_same_calls_give_the_same_trace() -> None:
    assert _trace(7, _EVERYTHING) == _trace(7, _EVERYTHING)
    assert _trace(7, _EVERYTHING) != _trace(8, _EVERYTHING)


def test_a_knob_does_not_change_the_ids_of_what_comes_after() -> None:
    plain, slow = (
        _trace(7, Faults(assign_delay=(1.0, 1.0))),
        _trace(7, Faults(assign_delay=(1.0, 1.0), latency=(0.0, 1.0))),
    )
    assert [one[3] for one in plain[:-2:2]] == [one[3] for one in slow[:-2:2]]


def test_what_is_due_happens_at_its_own_time_however_late_the_tick() -> None:
    scene = Scene()
    _, _, job = scene.busy()
    began = scene.clock.time
    scene.passes(5_000)
    assert job.completed_at is not None
    assert (job.completed_at - began).total_seconds() == 600


def test_the_model_says_when_it_next_has_something_to_do() -> None:
    scene = Scene(faults=Faults(hook_delay=(2.5, 2.5)))
    scene.passes(10)
    scene.queue()
    due = scene.github.next_due
    assert due is not None
    assert (due - scene.clock.time).total_seconds() == 2.5


def test_requests_without_credentials_are_refused() -> None:
    scene = Scene()
    for headers in ({}, {"authorization": "Basic x"}, {"authorization": "Bearer ghs_unknown"}):
        reply = scene.github.request(Request("GET", "/rate_limit", {}, headers))
        assert reply.status == 401


def test_faults_are_replaced_as_a_whole() -> None:
    scene = Scene(faults=Faults(server_error=1.0))
    assert scene.mint().status >= 500
    scene.github.set_faults(msgspec.structs.replace(scene.faults, server_error=0.0))
    assert scene.mint().status == 201
