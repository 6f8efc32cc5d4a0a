"""`paddock why`"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

import typer
from rich.cells import cell_len

from paddock.cli.listing import with_explanations
from paddock.cli.operator_commands import NoSuchObject
from paddock.cli.options import AsJson, Config, DataDir
from paddock.cli.output import show, show_json
from paddock.domain.plain_text import escaped, escaped_lines
from paddock.stories import Story
from paddock.stories.story import length
from paddock.system import SystemClock

#: The address of a job in the browser.
_JOB_URL = re.compile(r"https?://\S+/actions/runs/\d+/(?:attempts/\d+/)?jobs?/(\d+)\S*")
#: Lines of a log tail that fit a screen; `--json` has all of it.
_LAST_WORDS = 15
#: The largest indentation of a fact's further lines: more would leave too little of a narrow terminal.
_WIDEST_HANGING = 40


def why(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A job's number or its address at GitHub, a Pod's name, or a runner's at GitHub.",
        ),
    ],
    as_json: AsJson = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """Tell why a job or a runner is in its state, and what must happen next.

    One sentence gives the reason, one the next step. Below them are the recorded facts, each with its
    source and time. It reads only the database, which has what GitHub and the fleet reported. Exit
    code 3: nothing is known by that name.

    Examples:

        paddock why 48251733917

        paddock why https://github.com/acme/site/actions/runs/16215/job/48251733917

        paddock why linux-9ksbdsft7r --json
    """
    asked = found[1] if (found := _JOB_URL.fullmatch(name)) else name

    stories = with_explanations(
        lambda explanations: explanations.find(asked), config=config, data_dir=data_dir
    )
    if not stories:
        raise NoSuchObject(
            f"Nothing is known of {asked}: it is no job that GitHub reported, no Pod, and no runner's "
            "name. See `paddock jobs list` and `paddock runners list --ended`."
        )
    if as_json:
        show_json(stories)
        return
    for number, story in enumerate(stories):
        if number:
            show("")
        _show(story, SystemClock().now())


def _show(story: Story, now: datetime) -> None:
    kind = "" if story.kind == "runner" else f"job {story.name}  "
    show(f"{kind}{story.title}", style="bold")
    show(f"{story.state} for {length(now - story.since)}", style="dim")
    show("")
    show(f"  {story.why}", hanging=2)
    show(("  Next: ", "bold"), story.next, hanging=2)
    for remark in story.remarks:
        show(f"  {remark}", hanging=2)
    show("")
    _show_facts(story)
    if story.log_tail:
        lines = escaped_lines(story.log_tail.rstrip())
        show("")
        show("Its last words", style="bold")
        for line in lines[-_LAST_WORDS:]:
            show(f"  {line}")


def _show_facts(story: Story) -> None:
    names = max((cell_len(escaped(fact.who)) for fact in story.facts), default=0)
    for fact in story.facts:
        who = escaped(fact.who)
        known = f"{fact.at:%H:%M:%S.%f}"[:-3] + f"  {who}{' ' * (names - cell_len(who))}  "
        show((known, "dim"), fact.what, hanging=min(cell_len(known), _WIDEST_HANGING))
