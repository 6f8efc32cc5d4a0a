"""RunnerPool objects as an API server sends them. A real one is asked in `tests/cluster`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.fleet.kube.api import LEVELS, KubeApi, cut
from paddock.fleet.kube.pool_objects import KubePools
from paddock.pools.spec import described
from tests.support.pool_objects import JSON

RUNNER = '{"containers":[{"name":"runner","image":"x"}]'


def pool(name: str, *, levels: int = 0) -> str:
    """With as many levels in its template; in quotes and brackets that are no levels."""
    deep = '{"]a\\"[":' * levels + '["}",1]' + "}" * levels
    metadata = f'{{"name":"{name}","uid":"{name}","managedFields":[{{"fieldsV1":{deep}}}]}}'
    spec = f'{{"labels":["{name}"],"template":{{"spec":{RUNNER},"nodeSelector":{deep}}}}}}}'
    status = '{"conditions":[],"runners":7}'
    return f'{{"metadata":{metadata},"spec":{spec},"status":{status}}}'


class Server:
    def __init__(self) -> None:
        self.pools: list[str] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if "watch" in request.url.params:
            lines = [f'{{"type":"ADDED","object":{each}}}\n' for each in self.pools]
            return httpx2.Response(200, text="".join(lines))
        return httpx2.Response(200, text=f'{{"items":[{",".join(self.pools)}]}}')


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def pools(server: Server) -> AsyncIterator[KubePools]:
    transport = httpx2.MockTransport(server.answer)
    api = KubeApi(httpx2.AsyncClient(transport=transport, base_url="http://cluster"))
    yield KubePools(api, namespace="runners")
    await api.aclose()


@pytest.mark.parametrize("levels", [100, 1_000, 9_000])
async def test_an_object_with_levels_without_end_hides_no_other(
    levels: int, server: Server, pools: KubePools
) -> None:
    """I57: an API server accepts 10,000 levels."""
    server.pools = [pool("before"), pool("deep", levels=levels), pool("after")]
    listed = await pools.list()
    assert listed.complete
    assert [each.name for each in listed.pools] == ["before", "deep", "after"]
    before, deep, after = listed.pools
    for good in (before, after):
        assert described(good.name, good.spec).labels == (good.name,)
    assert deep.status.runners == 7
    with pytest.raises(ValueError, match="more than 50 levels"):
        described("deep", deep.spec)


async def test_a_change_of_such_an_object_is_a_change(server: Server, pools: KubePools) -> None:
    server.pools = [pool("deep", levels=9_000)]
    assert len([1 async for _ in pools.changes()]) == 1


@given(JSON)
def test_what_is_not_too_deep_is_not_cut(value: Any) -> None:
    encoded = msgspec.json.encode(value)
    assert cut(encoded) == encoded


@given(st.integers(0, 3 * LEVELS), st.sampled_from(["{}", "[]"]), st.sampled_from(["{}", "[]"]))
def test_what_is_too_deep_is_cut_to_json_that_can_be_read(
    levels: int, kind: str, beside: str
) -> None:
    begin, end = ('{"\\\\":', "}") if kind == "{}" else ('["]\\"",', "]")
    deep = f'[{begin * levels}{beside}{end * levels},"after"]'
    read = msgspec.json.decode(cut(deep.encode()))
    assert read[-1] == "after"
    found = 0
    while isinstance(read, dict | list) and read:
        read = read["\\"] if isinstance(read, dict) else read[1] if found else read[0]
        found += 1
    assert found <= LEVELS
