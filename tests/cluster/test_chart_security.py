"""What a hostile job can reach in an installation by the chart: the job runs and reports what it
found."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from paddock.fakes.github.records import Step
from paddock.fakes.github.server import plain_http
from paddock.fleet.kube.token_claims import AUDIENCES
from tests.support.kube import runner_template
from tests.support.release import ADDRESS, PATIENCE, Release, reachable
from tools.cluster.api import Refused

# Servers and containers are started.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

IDLE = "SELECT pod_name FROM runners WHERE state = 'idle'"
DISPATCH, VITALS = AUDIENCES
#: Sends a request as any client could, and prints the answer's status.
ASK = """
import ssl, sys, urllib.error, urllib.request
any_server = ssl._create_unverified_context()
try:
    print(urllib.request.urlopen(sys.argv[1], data=b"{}", timeout=10, context=any_server).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
#: Everything that looks like a token, or like a JIT: both begin as base64 of an object does.
HOSTILE = f"""
say() {{ echo "hostile: $1: $(cat)"; }}
try() {{ python3 -c "$ASK" "$1"; }}
ASK='{ASK}'
ls /var/run/secrets 2>&1 | say secrets
find /run /var /tmp /home /opt /etc /dev /mnt -name token -o -name jit 2>/dev/null | say tokens
for each in /run /var/run /tmp /home /dev/shm; do grep -rls eyJ $each 2>/dev/null; done | say encoded
env | grep -E 'eyJ|TOKEN|PADDOCK' | say environment
cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep eyJ | say processes
mount | grep -E 'projected|kubernetes.io~|serviceaccount' | say mounts
id -u | say user
grep CapEff /proc/self/status | say capabilities
try https://10.242.0.1/api/v1/namespaces | say api
try http://{ADDRESS}:8788/v1/dispatch | say dispatch
echo "hostile: done: yes"
"""


async def found(release: Release, pod: str) -> dict[str, str]:
    """The job's report, once it has tried everything."""
    log = ""
    async with asyncio.timeout(PATIENCE):
        while "hostile: done: yes" not in log:
            await asyncio.sleep(0.2)
            # A container that the kubelet has not reported yet has no log yet.
            with suppress(Refused):
                log = await release.api.log(release.runners, pod, "runner")
    lines = (each.split("hostile: ", 1)[1] for each in log.splitlines() if "hostile: " in each)
    return {name: said for name, _, said in (line.partition(": ") for line in lines)}


async def test_as_installed_no_peer_gets_more_than_is_meant_for_it(release: Release) -> None:
    """I21: one installation, for it takes longer than all that is tried on it."""
    env = [{"name": "ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT", "value": "1"}]
    await release.install(pools={"linux": {"minIdle": 2, "template": runner_template(env=env)}})
    async with reachable(release):
        await release.until("SELECT count(*) = 2 FROM runners WHERE state = 'idle'")
        await a_runners_account_has_no_rights(release)
        await only_a_pods_own_token_gets_its_own(release)
        await a_hostile_job_finds_nothing_to_take(release)


async def a_hostile_job_finds_nothing_to_take(release: Release) -> None:
    """No token, no JIT, no rights, no root."""
    held = f"{HOSTILE}\n{release.gate.wait()}"
    release.queue(name="hostile", steps=(Step("look around", held),))
    pod = await release.until("SELECT pod_name FROM runners WHERE state = 'busy'")
    said = await found(release, pod)
    assert said["done"] == "yes", said
    assert "No such file" in said["secrets"]
    assert said["tokens"] == ""
    assert said["encoded"] == ""
    assert said["environment"] == ""
    assert said["processes"] == ""
    assert said["mounts"] == ""
    assert said["user"] == "1001"
    assert said["capabilities"].split() == ["CapEff:", "0000000000000000"]
    # The API server and paddock refuse a client without credentials.
    assert said["api"] in ("401", "403")
    assert said["dispatch"] == "401"
    made = await release.api.get(f"{release.pods}/{pod}")
    assert not [volume for volume in made["spec"]["volumes"] if "hostPath" in volume]
    assert made["spec"]["automountServiceAccountToken"] is False


async def only_a_pods_own_token_gets_its_own(release: Release) -> None:
    """Tokens as the real API server makes and reviews them."""
    async with httpx2.AsyncClient(trust_env=False, verify=plain_http(), timeout=30) as client:
        pod = await release.api.get(f"{release.pods}/{await release.until(IDLE)}")

        async def asked(path: str, token: str, port: int = 8788) -> int:
            headers = {"authorization": f"Bearer {token}"}
            url = f"http://{ADDRESS}:{port}{path}?wait=0"
            return (await client.post(url, headers=headers, json={"samples": []})).status_code

        async def token(account: str = "paddock-runner", **more: Any) -> str:
            return await release.api.token(release.runners, account, **more)

        own = await token(audiences=[DISPATCH], pod=pod)
        vitals = await token(audiences=[VITALS], pod=pod)
        assert await asked("/v1/dispatch", own) == 204
        assert await asked("/v1/vitals", vitals, 8789) == 204
        # The sidecar's token gets no work; and the port for vitals does not serve the poller's path.
        assert await asked("/v1/dispatch", vitals) == 403
        assert await asked("/v1/dispatch", own, 8789) == 404
        for other in (
            await token(audiences=[DISPATCH]),  # of no Pod
            await token(audiences=[DISPATCH, VITALS], pod=pod),  # for both
            await token(pod=pod),  # for the cluster
            await release.api.token(release.namespace, "paddock", audiences=[DISPATCH]),
            "forged",
        ):
            assert await asked("/v1/dispatch", other) == 401


async def a_runners_account_has_no_rights(release: Release) -> None:
    token = await release.api.token(release.runners, "paddock-runner")
    async with release.cluster.api(token=token) as api:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": release.runners},
        }
        rules = (await api.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review))[
            "status"
        ]["resourceRules"]
    # Every account may ask about its own rights.
    assert {resource for rule in rules for resource in rule["resources"]} <= {
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "selfsubjectreviews",
    }
