"""The story of a job that a webhook reported and paddock passed over."""

from __future__ import annotations

from paddock.domain.intake import Passed
from paddock.domain.reading.details import PassedOver
from paddock.stories.story import Fact, ReasonAndNext, Story, sentence


def tell_passed_over(told: PassedOver) -> Story:
    why, following = _because(told)
    return Story(
        kind="job",
        name=str(told.job),
        title=f"job {told.job}",
        state="passed over" if told.state == "ignored" else "not looked at yet",
        since=told.received_at,
        why=why,
        next=following,
        facts=(
            Fact(
                at=told.received_at,
                who="GitHub",
                what=f"a webhook told of it; it asks for {_labels(told)}",
            ),
        ),
        jobs=(told.job,),
    )


def _because(told: PassedOver) -> ReasonAndNext:
    if told.state != "ignored":
        return ReasonAndNext(
            sentence(
                f"Its webhook has arrived and waits to be applied: {told.note or 'it is new'}"
            ),
            "It is tried again within seconds; `paddock deliveries list` shows it.",
        )
    match told.note:
        case Passed.NOT_OURS:
            return ReasonAndNext(
                f"No pool has any of its labels ({_labels(told)}), so it is left to others.",
                "If it is meant for paddock, its runs-on has to name a pool's labels, or a pool has "
                "to have these. A job keeps its labels: run it again then.",
            )
        case Passed.INSTALLATION_REMOVED | Passed.NO_INSTALLATION:
            return ReasonAndNext(
                "It was told of by an installation of the App that is not there any more, or by "
                "none at all.",
                "Install the GitHub App for its organisation, and run it again.",
            )
        case _:
            return ReasonAndNext(
                sentence(f"Its webhook changed nothing: {told.note}"),
                "Nothing will: no part of paddock waits for it.",
            )


def _labels(told: PassedOver) -> str:
    return ", ".join(told.labels) or "no label at all"
