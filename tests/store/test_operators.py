"""Operators' actions: done in their name, each with one event in the log, from every interface."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from paddock.domain.limits import Limits
from paddock.domain.states import RunnerState
from paddock.operators import Operator, UnknownName
from paddock.store.database import Database
from paddock.web.actions import CannotAct, act
from tests.support.world import World


@pytest.fixture
async def world(database: Database) -> World:
    return await World(database).begin()


async def test_what_an_operator_does_is_logged_with_who_what_and_why(world: World) -> None:
    await world.account()
    await world.pool()
    operator = Operator(world.store, actor="operator:ana")
    with capture_logs() as lines:
        assert await operator.pause_pool("linux", why="incident 7")
        assert not await operator.pause_pool("linux", why="incident 7")
        assert await operator.resume_pool("linux", why="over")
        assert await operator.pause_account("ORG-1", why="invoice")
        assert await operator.resume_account("github.com/org-1", why="paid")
        assert await operator.pause_dispatch(why="the registry is down")
        assert await operator.resume_dispatch(why="it is up")
        await operator.set_weight("org-1", 3)
        await operator.set_limits("org-1", None, lambda before: Limits(runners=5))
        await operator.set_limits("org-1", "org-1/repo", lambda before: Limits(runners=2))
        assert await operator.retry_deliveries(None) == 0
        assert await operator.delete_pool("linux", why="moved")
    told = [
        (line["action"], line["subject"], line["why"], line["done"])
        for line in lines
        if line["event"] == "operator.acted" and line["actor"] == "operator:ana"
    ]
    assert told == [
        ("pause-pool", "linux", "incident 7", True),
        ("pause-pool", "linux", "incident 7", False),
        ("resume-pool", "linux", "over", True),
        ("pause-account", "ORG-1", "invoice", True),
        ("resume-account", "github.com/org-1", "paid", True),
        ("pause-dispatch", None, "the registry is down", True),
        ("resume-dispatch", None, "it is up", True),
        ("set-weight", "org-1", None, True),
        ("set-limits", "org-1", None, True),
        ("set-limits", "org-1/repo", None, True),
        ("retry-deliveries", "all", None, False),
        ("delete-pool", "linux", "moved", True),
    ]
    assert {line["pool"] for line in lines if "pool" in line["action"]} == {"linux"}
    assert {line["account"] for line in lines if "account" in line["action"]} == {"org-1"}


@pytest.mark.parametrize("force", [False, True])
async def test_a_runner_that_is_sent_away_is_named_in_the_log(world: World, force: bool) -> None:
    [pod] = await world.idle_pods(await world.pool(), 1)
    with capture_logs() as lines:
        runner = await Operator(world.store, actor="operator:ana").retire_runner(
            pod.pod_name, why="its disk is odd", force=force
        )
    assert runner is not None
    assert runner.state is RunnerState.RETIRING
    [line] = [line for line in lines if line["event"] == "operator.acted"]
    assert line["action"] == ("force-retire-runner" if force else "retire-runner")
    assert (line["actor"], line["why"]) == ("operator:ana", "its disk is odd")
    assert (line["pod"], line["pool"]) == (pod.pod_name, "linux")


async def test_the_dashboard_acts_and_logs_like_the_command_line(world: World) -> None:
    await world.pool()
    with capture_logs() as lines:
        assert await act(world.store, "pause-pool", name="linux", why=" a\nb ", actor="dashboard:1")
    [line] = [line for line in lines if line["event"] == "operator.acted"]
    assert (line["actor"], line["subject"], line["why"]) == ("dashboard:1", "linux", "a b")
    with pytest.raises(CannotAct, match="There is no pool other"):
        await act(world.store, "pause-pool", name="other", why="", actor="dashboard:1")


async def test_what_is_not_there_is_neither_done_nor_logged(world: World) -> None:
    operator = Operator(world.store, actor="operator:ana")
    with capture_logs() as lines:
        with pytest.raises(UnknownName, match="There is no account missing"):
            await operator.pause_account("missing", why="?")
        with pytest.raises(UnknownName, match="There is no pool missing"):
            await operator.delete_pool("missing", why="?")
    assert lines == []
