"""The order of the moments at which a claim, its mint and its leftovers are given up."""

from __future__ import annotations

from datetime import timedelta

from paddock.domain.recovery.stale_claim import MINT_DEADLINE, MINT_GIVEN_UP, MINT_SETTLED
from paddock.domain.recovery.thresholds import Thresholds
from paddock.github.connection import TOTAL_TIMEOUT_S
from paddock.web.pods import LONGEST_WAIT


def test_a_mint_is_given_up_then_taken_over_then_settled_then_released() -> None:
    """I19, I41: two replicas never mint for one claim at once, and no record is left at GitHub."""
    released = timedelta(seconds=Thresholds().stale_claim)
    assert MINT_GIVEN_UP < MINT_DEADLINE < MINT_SETTLED < released


def test_the_github_client_gives_up_when_the_claim_expects_it() -> None:
    assert timedelta(seconds=TOTAL_TIMEOUT_S) == MINT_GIVEN_UP


def test_a_claim_is_released_after_five_polls_could_have_taken_it_over() -> None:
    """The reason that `stale_claim` gives for its number."""
    polls = (Thresholds().stale_claim - MINT_DEADLINE.total_seconds()) / LONGEST_WAIT
    assert polls >= 5
