"""The services for runners, as their protocol is documented: tokens, refusals, jobs, uploads."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from paddock.fakes.github import FaultKind, JobSpec, Step
from paddock.fakes.github.jit import runner_key
from paddock.fakes.github.job_message import job_message
from paddock.fakes.github.records import Runner
from paddock.fakes.github.server import plain_http
from paddock.fakes.github.uploads import ALL_OCTETS, JOB_OCTETS, LOG_OCTETS, Uploads
from paddock.fakes.runner import decode_jit
from paddock.fakes.runner_service import JobService, RefusedError, Service
from paddock.fakes.runner_steps import Expressions, UnknownError, context
from tests.fakes.conftest import World

GRANT = {
    "grant_type": "client_credentials",
    "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
}


@dataclass
class Listener:
    """A runner's listener, one call at a time."""

    world: World
    record: Runner
    files: dict[str, dict[str, Any]]
    service: Service

    async def do(self, what: str, *arguments: Any, **options: Any) -> Any:
        return await asyncio.to_thread(getattr(self.service, what), *arguments, **options)

    async def connect(self) -> None:
        await self.do("connect", "r1", "2.330.0")

    async def message(self, *, busy: bool = False, timeout: float = 20.0) -> Any:
        return await self.do("message", "2.330.0", busy=busy, timeout=timeout)

    async def job(self) -> JobService:
        acquired: JobService = await self.do("acquire", await self.message())
        return acquired


@pytest.fixture
def listener(world: World) -> Listener:
    record, encoded = world.mint()
    files = decode_jit(encoded)
    return Listener(world, record, files, Service(files))


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        base_url=world.url, trust_env=False, verify=plain_http(), timeout=20.0
    ) as client:
        yield client


def assertion(listener: Listener, **changed: Any) -> str:
    key = listener.files[".credentials_rsaparams"]
    numbers = {name: int.from_bytes(base64.b64decode(value)) for name, value in key.items()}
    private = rsa.RSAPrivateNumbers(
        p=numbers["p"],
        q=numbers["q"],
        d=numbers["d"],
        dmp1=numbers["dp"],
        dmq1=numbers["dq"],
        iqmp=numbers["inverseQ"],
        public_numbers=rsa.RSAPublicNumbers(numbers["exponent"], numbers["modulus"]),
    ).private_key()
    now = int(listener.world.github.world.time.timestamp())
    data = listener.files[".credentials"]["Data"]
    claims = {
        "iss": data["ClientId"],
        "sub": data["ClientId"],
        "aud": data["AuthorizationUrl"],
        "nbf": now,
        "exp": now + 300,
    }
    algorithm = changed.pop("algorithm", "PS256")
    return jwt.encode(claims | changed, private, algorithm=algorithm)


async def token_for(client: httpx2.AsyncClient, text: str) -> httpx2.Response:
    return await client.post("/_runner/token", data={**GRANT, "client_assertion": text})


class TestConfiguration:
    async def test_all_scalars_are_texts(self, listener: Listener) -> None:
        """github-act-runner refuses numbers."""
        for name in (".runner", ".credentials_rsaparams"):
            assert all(isinstance(value, str) for value in listener.files[name].values())

    async def test_addresses_end_with_a_slash(self, listener: Listener) -> None:
        settings = listener.files[".runner"]
        assert settings["ServerUrl"] == settings["ServerUrlV2"]
        assert settings["ServerUrl"].endswith("/")

    def test_keys_are_few_and_have_the_sizes_of_real_ones(self) -> None:
        keys = [runner_key(number) for number in range(16)]
        assert len({key.secret for key in keys}) == 8
        for key in keys:
            sizes = {name: len(base64.b64decode(v)) for name, v in key.parameters.items()}
            halves = dict.fromkeys(("p", "q", "dp", "dq", "inverseQ"), 128)
            assert sizes == {"d": 256, "modulus": 256, "exponent": 3, **halves}


class TestTokens:
    @pytest.mark.parametrize("algorithm", ["PS256", "RS256"])
    async def test_an_assertion_is_exchanged_for_a_token(
        self, listener: Listener, client: httpx2.AsyncClient, algorithm: str
    ) -> None:
        answer = await token_for(client, assertion(listener, algorithm=algorithm))
        assert (answer.status_code, answer.json()["token_type"]) == (200, "bearer")
        jwt.decode(answer.json()["access_token"], options={"verify_signature": False})

    @pytest.mark.parametrize(
        "changed",
        [
            {"exp": 1},
            {"nbf": 1 << 33},
            {"aud": "http://x/else"},
            {"aud": "http://["},
            {"sub": "another"},
        ],
    )
    async def test_a_wrong_assertion_is_refused(
        self, listener: Listener, client: httpx2.AsyncClient, changed: dict[str, Any]
    ) -> None:
        answer = await token_for(client, assertion(listener, **changed))
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_client")

    @pytest.mark.parametrize("missing", GRANT)
    async def test_an_assertion_without_its_grant_is_refused(
        self, listener: Listener, client: httpx2.AsyncClient, missing: str
    ) -> None:
        form = {**GRANT, "client_assertion": assertion(listener), missing: "password"}
        answer = await client.post("/_runner/token", data=form)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_client")

    async def test_a_signature_of_another_key_is_refused(
        self, world: World, listener: Listener, client: httpx2.AsyncClient
    ) -> None:
        _, other = world.mint("r2")
        stolen = Listener(world, listener.record, decode_jit(other), listener.service)
        stolen.files[".credentials"] = listener.files[".credentials"]
        assert (await token_for(client, assertion(stolen))).status_code == 400
        assert (await token_for(client, "rubbish")).status_code == 400

    async def test_a_deleted_registration_gets_none(
        self, world: World, listener: Listener, client: httpx2.AsyncClient
    ) -> None:
        world.github.runners.delete(listener.record)
        answer = await token_for(client, assertion(listener))
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_client")

    async def test_a_listeners_token_is_none_for_a_job(
        self, listener: Listener, client: httpx2.AsyncClient
    ) -> None:
        token = (await token_for(client, assertion(listener))).json()["access_token"]
        headers = {"authorization": f"bearer {token}"}
        for path in ("/_runner/run/renewjob", "/_runner/run/completejob"):
            assert (await client.post(path, json={}, headers=headers)).status_code == 401
        for method, path in (("POST", "broker/session"), ("GET", "broker/message")):
            assert (await client.request(method, f"/_runner/{path}")).status_code == 401


async def test_the_older_service_is_found_without_a_token_and_sends_on(
    listener: Listener, client: httpx2.AsyncClient
) -> None:
    found = await client.get("/_runner/broker/_apis/connectionData?connectOptions=1")
    [service] = found.json()["locationServiceData"]["serviceDefinitions"]
    assert service["identifier"] == "134e239e-2df3-4794-a6f6-24f1f19ec8dc"
    sessions = "/_runner/broker/_apis/distributedtask/pools/1/sessions"
    assert (await client.post(sessions)).status_code == 401
    token = (await token_for(client, assertion(listener))).json()["access_token"]
    answer = await client.post(sessions, headers={"authorization": f"Bearer {token}"})
    # github-act-runner appends /session.
    assert not answer.json()["brokerMigrationMessage"]["brokerBaseUrl"].endswith("/")


class TestSessions:
    async def test_a_second_one_is_a_conflict(self, listener: Listener) -> None:
        await listener.connect()
        with pytest.raises(RefusedError) as refused:
            await listener.connect()
        assert (refused.value.status, refused.value.code) == (409, "session-conflict")

    async def test_an_outdated_version_is_refused(self, listener: Listener) -> None:
        await listener.connect()
        waits = asyncio.create_task(listener.message())
        await asyncio.sleep(0.5)
        listener.world.github.world.deprecated_versions.add("2.330.0")
        listener.world.queue("true")
        with pytest.raises(RefusedError, match="cannot receive messages") as refused:
            await waits
        assert (refused.value.status, refused.value.code) == (403, "version-deprecated")

    async def test_a_registration_deleted_while_it_waits_is_told(self, listener: Listener) -> None:
        await listener.connect()
        waits = asyncio.create_task(listener.message())
        await asyncio.sleep(0.5)
        listener.world.github.runners.delete(listener.record)
        with pytest.raises(RefusedError) as refused:
            await waits
        assert (refused.value.status, refused.value.code) == (404, "registration-deleted")
        with pytest.raises(RefusedError) as refused:  # the token is still good
            await listener.connect()
        assert refused.value.status == 404

    async def test_one_that_has_ended_is_told_so(self, listener: Listener) -> None:
        await listener.connect()
        await listener.do("disconnect")
        with pytest.raises(RefusedError) as refused:
            await listener.message()
        assert refused.value.code == "session-lost"


class TestJobs:
    async def test_a_message_comes_again_until_it_is_acknowledged(self, listener: Listener) -> None:
        listener.world.queue("true")
        await listener.connect()
        first, again = await listener.message(), await listener.message()
        assert first["runner_request_id"] == again["runner_request_id"]

    async def test_a_busy_poll_gets_no_job(self, listener: Listener) -> None:
        listener.world.queue("true")
        await listener.connect()
        with pytest.raises(TimeoutError):
            await listener.message(busy=True, timeout=1.0)
        assert await listener.message() is not None

    async def test_a_cancellation_names_the_job_as_the_runner_knows_it(
        self, listener: Listener
    ) -> None:
        job = listener.world.queue("true")
        await listener.connect()
        service = await listener.job()
        waits = asyncio.create_task(listener.message(busy=True))
        await asyncio.sleep(0.5)
        listener.world.github.jobs.cancel(job)
        message = await waits
        assert (message["type"], message["jobId"]) == ("JobCancellation", service.job["jobId"])

    async def test_a_job_no_longer_offered_is_neither_acknowledged_nor_acquired(
        self, listener: Listener
    ) -> None:
        job = listener.world.queue("true")
        await listener.connect()
        message = await listener.message()
        listener.world.github.jobs.cancel(job)
        for should_acknowledge, status in ((True, 404), (False, 409)):
            with pytest.raises(RefusedError) as refused:
                await listener.do("acquire", message | {"should_acknowledge": should_acknowledge})
            assert refused.value.status == status

    async def test_a_jobs_token_renews_its_lease_and_reports_its_result(
        self, listener: Listener
    ) -> None:
        job = listener.world.queue("true")
        await listener.connect()
        service = await listener.job()
        assert 0 < await asyncio.to_thread(service.renew) <= 60
        steps = [{"number": 2, "name": "step 0", "conclusion": "failed", "status": "completed"}]
        await asyncio.to_thread(service.complete, "failed", steps)
        assert (job.conclusion, job.steps[1]["conclusion"]) == ("failure", "failure")
        assert listener.world.github.uploads.of(job.id).results == steps
        with pytest.raises(RefusedError) as refused:
            await asyncio.to_thread(service.renew)
        assert refused.value.status == 404
        await listener.do("disconnect")

    async def test_a_message_that_is_used_twice_gives_no_second_job(
        self, listener: Listener
    ) -> None:
        """Nor does it to a runner that it was not sent to."""
        world, job = listener.world, listener.world.queue("true")
        await listener.connect()
        message = await listener.message()
        record, encoded = world.mint("r2")
        other = Listener(world, record, decode_jit(encoded), Service(decode_jit(encoded)))
        await other.connect()
        replayed = message | {"should_acknowledge": False}
        for each in (replayed, message):
            with pytest.raises(RefusedError):
                await other.do("acquire", each)
        service = await listener.do("acquire", message)
        for each in (replayed, message):
            with pytest.raises(RefusedError):
                await listener.do("acquire", each)
        await asyncio.to_thread(service.complete, "succeeded", [])
        with pytest.raises(RefusedError) as refused:
            await asyncio.to_thread(service.complete, "failed", [])
        assert (refused.value.status, job.conclusion) == (404, "success")

    @pytest.mark.parametrize(
        "odd",
        [
            {"stepResults": 7},
            {"stepResults": {"number": 1}},
            {"stepResults": [7, None, {"number": "2"}, {"number": 1, "name": None}, {}]},
            {"stepResults": [{"number": [1]}, {"number": {}}], "outputs": [1]},
            {"conclusion": ["failed"], "stepResults": None},
        ],
    )
    async def test_a_report_of_odd_types_completes_the_job(
        self, listener: Listener, client: httpx2.AsyncClient, odd: dict[str, Any]
    ) -> None:
        job = listener.world.queue("true")
        await listener.connect()
        service = await listener.job()
        headers = {"authorization": f"Bearer {service._token}"}
        body = {**service._ids, "conclusion": "failed", **odd}
        answer = await client.post("/_runner/run/completejob", json=body, headers=headers)
        assert (answer.status_code, job.conclusion) == (204, "failure")

    async def test_forty_runners_hold_their_polls_and_get_a_job_each(self, world: World) -> None:
        minted = [world.mint(f"r{number}") for number in range(40)]
        listeners = [
            Listener(world, record, decode_jit(encoded), Service(decode_jit(encoded)))
            for record, encoded in minted
        ]
        await asyncio.gather(*(each.connect() for each in listeners))
        polls = [asyncio.create_task(each.message()) for each in listeners]
        await asyncio.sleep(0.5)
        jobs = [world.queue("true", name=f"job {number}") for number in range(40)]
        messages = await asyncio.gather(*polls)
        assert len({message["runner_request_id"] for message in messages}) == 40
        for each, message in zip(listeners, messages, strict=True):
            service = await each.do("acquire", message)
            await asyncio.to_thread(service.complete, "succeeded", [])
        assert {job.conclusion for job in jobs} == {"success"}
        assert listeners[0].world.github.world.runners == {}

    async def test_a_runner_deleted_in_its_job_is_still_told_of_a_cancellation(
        self, listener: Listener
    ) -> None:
        job = listener.world.queue("true")
        await listener.connect()
        await listener.job()
        listener.world.github.runners.delete(listener.record)
        listener.world.github.jobs.cancel(job)
        assert (await listener.message(busy=True))["type"] == "JobCancellation"

    @pytest.mark.parametrize(
        ("kind", "status"),
        [(FaultKind.CONFLICT, 409), (FaultKind.NOT_FOUND, 404), (FaultKind.INVALID, 422)],
    )
    async def test_an_injected_fault_hits_the_call_that_it_names(
        self, listener: Listener, kind: FaultKind, status: int
    ) -> None:
        listener.world.queue("true")
        listener.world.github.inject(FaultKind.NOT_FOUND)  # for the REST API
        listener.world.github.inject(kind, route="runner.acquire")
        await listener.connect()
        message = await listener.message()
        with pytest.raises(RefusedError) as refused:
            await listener.do("acquire", message)
        assert refused.value.status == status
        await listener.do("acquire", message | {"should_acknowledge": False})

    async def test_a_lost_reply_is_a_broken_connection(self, listener: Listener) -> None:
        listener.world.github.inject(FaultKind.REPLY_LOST, route="runner.session")
        with pytest.raises(OSError, match="middle"):
            await listener.connect()
        assert listener.record.session is not None


def sent(world: World, spec: JobSpec) -> dict[str, Any]:
    runner, _ = world.mint()
    [job] = world.github.jobs.queue_run(world.repository, [spec]).jobs
    return job_message(job, runner, api_url=world.url, html_url=world.url, job_token="t")


class TestSteps:
    async def test_texts_become_tokens(self, world: World) -> None:
        steps = (
            Step("plain", "echo {it's}"),
            Step("whole", "${{ github.sha }}"),
            Step("mixed", "a='${{ env.A }}' {b} ${{ matrix.os }}", shell="bash"),
        )
        message = sent(world, JobSpec(steps=steps))
        scripts = [
            {each["key"]: each["value"] for each in step["inputs"]["map"]}["script"]
            for step in message["steps"]
        ]
        assert scripts == [
            {"type": 0, "lit": "echo {it's}"},
            {"type": 3, "expr": "github.sha"},
            {"type": 3, "expr": "format('a=''{0}'' {{b}} {1}', env.A, matrix.os)"},
        ]
        names = [step["contextName"] for step in message["steps"]]
        assert names == ["__run", "__run_2", "__run_3"]

    async def test_our_runner_evaluates_what_the_fake_sends(self, world: World) -> None:
        spec = JobSpec(env={"A": "1"}, matrix={"os": "linux", "fast": True})
        contexts = {k: context(v) for k, v in sent(world, spec)["contextData"].items()}
        expressions = Expressions(contexts | {"env": {"A": "1"}})
        mixed = expressions.value("format('a=''{0}'' {{b}} {1}', env.A, matrix.os)")
        assert mixed == "a='1' {b} linux"
        assert expressions.value("github.repository") == "octo-org/hello"
        assert (expressions.value("success()"), expressions.value("failure()")) == (True, False)

    @pytest.mark.parametrize(
        "expression", ["toJSON(github)", "steps.a.outputs.b", "1 == 1", "format('x'", ""]
    )
    def test_our_runner_says_which_expression_it_does_not_know(self, expression: str) -> None:
        with pytest.raises(UnknownError):
            Expressions({"github": {}}).value(expression)

    async def test_our_runner_runs_them_and_uploads_its_log(self, world: World) -> None:
        steps = (
            Step("here", "pwd", working_directory="/"),
            Step("said", "echo $WHO ${{ env.LEVEL }}", env={"WHO": "${{ github.repository }}"}),
            Step("bash", "set -o | grep -c pipefail", shell="bash"),
            Step("hidden", "echo ${{ secrets.KEY }}"),
            Step("may fail", "exit 1", continue_on_error=True),
            Step("never", "true", condition="failure()"),
            Step("cannot", "true", shell="pwsh"),
            Step("always", "echo the end", condition="always()"),
        )
        spec = JobSpec(
            labels=("linux",), steps=steps, env={"LEVEL": "7"}, secrets={"KEY": "confidential"}
        )
        [job] = world.github.jobs.queue_run(world.repository, [spec]).jobs
        assert (await (await world.start()).ends())[0] == 0
        assert job.conclusion == "failure"
        ends = [step["conclusion"] for step in job.steps[1:-1]]
        assert ends == ["success"] * 4 + ["failure", "skipped", "failure", "success"]
        log = world.github.uploads.of(job.id).text()
        assert [line.partition("Z ")[2] for line in log.splitlines()] == [
            "/",
            "octo-org/hello 7",
            "1",
            "***",
            "The fake runner has no shell 'pwsh'.",
            "the end",
        ]


class TestUploads:
    async def test_an_address_without_its_signature_takes_nothing(
        self, listener: Listener, client: httpx2.AsyncClient
    ) -> None:
        job = listener.world.queue("true")
        await listener.connect()
        service = await listener.job()
        await asyncio.to_thread(service.upload_log, "line\n")
        for query in ("", "?sig=", "?sig=00", "?sig=%C3%A9"):
            answer = await client.put(f"/_runner/blob/{job.id}/{query}", content=b"x")
            assert answer.status_code == 403
        assert listener.world.github.uploads.of(job.id).text() == "line\n"

    def test_a_log_is_kept_up_to_a_limit(self) -> None:
        uploads = Uploads()
        for _ in range(3):
            uploads.write(1, "", b"x" * (LOG_OCTETS // 2), append=True)
        assert len(uploads.of(1).log()) == LOG_OCTETS
        uploads.write(1, "", b"new", append=False)
        assert uploads.of(1).log() == "new"

    def test_of_all_logs_the_newest_are_kept(self) -> None:
        uploads = Uploads()
        for job in range(70):
            uploads.write(job, "", b"x" * LOG_OCTETS, append=False)
        assert uploads.of(0).text() == ""
        assert len(uploads.of(69).text()) == LOG_OCTETS

    def test_one_job_gets_a_share_of_the_memory_and_no_more(self) -> None:
        uploads = Uploads()
        for number in range(40):
            uploads.write(1, f"step {number}", b"x" * LOG_OCTETS, append=True)
        assert uploads.of(1).octets == uploads.octets <= JOB_OCTETS
        for number in range(40):
            uploads.say(2, ["x" * LOG_OCTETS])
            uploads.update_steps(3, [{"external_id": str(number), "name": "x" * LOG_OCTETS}])
        uploads.complete(4, [{"name": "x" * LOG_OCTETS}] * 40, {})
        assert all(uploads.of(job).octets <= JOB_OCTETS for job in (2, 3, 4))
        assert uploads.octets <= ALL_OCTETS

    def test_what_replaces_something_takes_its_room(self) -> None:
        uploads = Uploads()
        for _ in range(40):
            uploads.write(1, "", b"x" * LOG_OCTETS, append=False)
            uploads.update_steps(1, [{"external_id": "a", "name": "x" * 1000}])
        assert uploads.octets < 2 * LOG_OCTETS
        assert uploads.of(1).steps["a"]["name"] == "x" * 1000
