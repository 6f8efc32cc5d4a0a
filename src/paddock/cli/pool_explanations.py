"""`paddock pools explain`: why a pool has its size, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from paddock.domain.allocation import Withheld
from paddock.domain.pools.reconcile import Candidate, PoolAim, PoolPlan, plan
from paddock.domain.pools.surveys import DemandedKey, PoolExplanation
from paddock.domain.pools.terms import Terms, shown
from paddock.domain.runners.runner import Runner
from paddock.domain.states import RunnerState

#: The most runners of each kind that are named.
_NAMED = 5

_WAITING = (RunnerState.BOOTING, RunnerState.IDLE)


def told(explanation: PoolExplanation, *, now: datetime) -> Iterator[str]:
    """The explanation, line by line."""
    pool = explanation.pool
    yield f"{pool.name}: {_state(explanation)}"
    yield from _sizing(explanation, now)
    yield from (f"  not more: {reason}" for reason in _not_more(explanation))
    yield ""
    yield from _runners(explanation, now)
    if explanation.keys:
        yield ""
        yield from (_key(key, now) for key in explanation.keys)


def as_json(explanation: PoolExplanation) -> dict[str, object]:
    pool, past = explanation.pool, explanation.decision
    return {
        "pool": pool.name,
        "state": pool.state,
        "paused": pool.paused,
        "pause": explanation.pause,
        "decision": past
        and {
            "at": past.at,
            "wanted": past.decision.wanted,
            "target": past.decision.target,
            "terms": past.decision.terms,
            "why": past.decision.why,
        },
        "not_more": [*_not_more(explanation)],
        "runners": {
            state: [_runner_json(each, explanation) for each in found]
            for state, found in _by_state(explanation.runners).items()
        },
        "keys": [_key_json(key) for key in explanation.keys],
    }


def _state(explanation: PoolExplanation) -> str:
    pool = explanation.pool
    if pool.state != "active":
        return f"being deleted; runners left: {pool.live}. Those at work finish first."
    pause = explanation.pause
    return "active." if pause is None else f"paused {pause}. It keeps what it has."


def _sizing(explanation: PoolExplanation, now: datetime) -> Iterator[str]:
    past = explanation.decision
    if past is None:
        if explanation.pool.state == "active":
            yield "  Its size has not been decided yet: is paddock running?"
        return
    decision = past.decision
    yield f"  should have {decision.target}: {decision.why}."
    yield f"  decided {_length(now - past.at)} ago"


def _not_more(explanation: PoolExplanation) -> Iterator[str]:
    """Why the pool has no more runners now."""
    pool, past = explanation.pool, explanation.decision
    if past is None or pool.state != "active" or pool.paused:
        return
    terms = past.decision.terms
    if terms.withheld:
        yield "an account's or repository's limit withholds work that is queued"
    if terms.room is not None:
        yield f"the hosts there are have room for {terms.room}, shared with other pools"
        yield from (f"{each.host} is not fit for runners: {each.why}" for each in explanation.unfit)
    if terms.maximum is not None and past.decision.target >= terms.maximum > 0:
        yield f"{terms.maximum} is its maximum"
    yield from (f"{reason} (for now)" for reason in _planned(explanation).held_back)


def _planned(explanation: PoolExplanation) -> PoolPlan:
    """What a round would do now, as far as is known without reading the fleet."""
    pool, past = explanation.pool, explanation.decision
    try:
        terms = Terms.of(pool.spec)
    except ValueError as error:
        return PoolPlan(held_back=(str(error),))
    waiting = [Candidate(runner=each) for each in explanation.runners if each.state in _WAITING]
    return plan(PoolAim.of(pool, terms, target=past.decision.target if past else 0), waiting)


def _runners(explanation: PoolExplanation, now: datetime) -> Iterator[str]:
    if not explanation.runners:
        yield "  has no runners"
    for state, found in _by_state(explanation.runners).items():
        stale = sum(_is_stale(each, explanation) for each in found)
        beside = f", {stale} of them stale" if stale and state in _WAITING else ""
        yield f"  has {len(found)} {state}{beside}: {RunnerState(state).meaning}"
        if state in (RunnerState.BOOTING, RunnerState.RETIRING):
            yield from _named(found, now)


def _named(runners: Sequence[Runner], now: datetime) -> Iterator[str]:
    for runner in runners[:_NAMED]:
        why = f": {runner.retire_reason}" if runner.state is RunnerState.RETIRING else ""
        where = f" on {runner.node}" if runner.node else ""
        yield f"      {runner.pod_name}{where}, for {_length(now - runner.since)}{why}"
    if len(runners) > _NAMED:
        yield f"      and {len(runners) - _NAMED} more"


def _key(key: DemandedKey, now: datetime) -> str:
    load = key.load
    whose = key.repository or key.login
    text = f"  {whose}: {load.queued} queued, the oldest for {_length(now - load.oldest)}"
    if load.supply:
        text += f"; runners on their way to them: {load.supply}"
    match key.blocked:
        case None:
            return text
        case Withheld.BACK_OFF:
            until = key.blocked_until
            left = _length(until - now) if until else "a while"
            return f"{text}; not served for another {left}: {key.blocked_because}"
        case Withheld.INSTALLATION:
            return f"{text}; not served: the App is not installed there, or is suspended"
        case _:
            return f"{text}; not served: {key.blocked}"


def _key_json(key: DemandedKey) -> dict[str, object]:
    return {
        "account": key.login,
        "repository": key.repository,
        "queued": key.load.queued,
        "supply": key.load.supply,
        "oldest": key.load.oldest,
        "blocked": key.blocked,
        "blocked_until": key.blocked_until,
        "blocked_because": key.blocked_because,
    }


def _runner_json(runner: Runner, explanation: PoolExplanation) -> dict[str, object]:
    return {
        "pod": runner.pod_name,
        "since": runner.since,
        "host": runner.node,
        "stale": _is_stale(runner, explanation),
        "retire_reason": runner.retire_reason,
    }


def _by_state(runners: Sequence[Runner]) -> dict[str, list[Runner]]:
    found = {state: [each for each in runners if each.state is state] for state in RunnerState}
    return {state.value: those for state, those in found.items() if those}


def _is_stale(runner: Runner, explanation: PoolExplanation) -> bool:
    return runner.spec_hash != explanation.pool.spec_hash


def _length(length: timedelta) -> str:
    """Rounded to what matters: seconds within minutes, minutes within hours."""
    seconds = max(0, int(length.total_seconds()))
    if seconds >= 2 * 3600:
        return shown(timedelta(hours=seconds // 3600))
    return shown(timedelta(minutes=seconds // 60)) if seconds >= 120 else f"{seconds}s"
