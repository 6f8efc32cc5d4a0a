"""`paddock endings`"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Annotated

import typer

from paddock.cli.layout import prose
from paddock.cli.listing import (
    DEFAULT_LIMIT,
    Cursor,
    Limit,
    Listing,
    ago,
    there_is_more,
    time_ago,
    with_reading,
)
from paddock.cli.options import AsJson, Config, DataDir
from paddock.cli.output import show_json, table
from paddock.domain.reading.filters import Paging, VerdictFilter
from paddock.domain.runners.endings import Ending

app = typer.Typer(
    help="List how runners ended, with the evidence.", cls=Listing, rich_markup_mode=None
)

Pool = Annotated[str | None, typer.Option(metavar="POOL")]
Node = Annotated[str | None, typer.Option(metavar="NODE")]
Image = Annotated[str | None, typer.Option(metavar="IMAGE")]
#: If an ending occurs on one node only, or with one image only, that node or image causes it.
Since = Annotated[
    str,
    typer.Option(metavar="TIME", help="Only endings within this period, e.g. 30m, 24h, 7d."),
]


@app.command("list")
def list_(
    ending: Annotated[Ending | None, typer.Option(help="Only this ending.")] = None,
    abnormal: Annotated[bool, typer.Option("--abnormal", help="Only what was abnormal.")] = False,
    pool: Pool = None,
    node: Node = None,
    image: Image = None,
    since: Since = "7d",
    limit: Limit = DEFAULT_LIMIT,
    after: Cursor = None,
    as_json: AsJson = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """List verdicts, the newest first.

    Examples:

        paddock endings --abnormal --since 24h

        paddock endings --ending host-oom --pool linux
    """
    wanted = VerdictFilter(
        ending=ending,
        abnormal=True if abnormal else None,
        pool=pool,
        node=node,
        image=image,
        since=time_ago(since),
    )
    page = with_reading(
        lambda reading: reading.verdicts(wanted, Paging(limit=limit, cursor=after)),
        config=config,
        data_dir=data_dir,
    )
    there_is_more(page)
    if as_json:
        show_json(page.items)
        return
    table(
        ["POD", "POOL", "ENDED", "ENDING", "EXIT", "NODE", "JOB", prose("WHY")],
        (
            (
                each.pod,
                each.pool,
                ago(each.ended_at),
                each.ending,
                each.exit_code,
                each.node,
                each.job,
                each.why,
            )
            for each in page.items
        ),
        empty="No ending matches.",
    )


@app.command()
def counts(
    pool: Pool = None,
    node: Node = None,
    image: Image = None,
    since: Since = "24h",
    as_json: AsJson = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """Count runners by how they ended.

    Example:

        paddock endings counts --since 7d --node worker-3
    """
    wanted = VerdictFilter(pool=pool, node=node, image=image)
    start = time_ago(since)
    found = with_reading(
        lambda reading: reading.endings(wanted, since=start, step=timedelta(days=1)),
        config=config,
        data_dir=data_dir,
    )
    totals: Counter[Ending] = Counter()
    for each in found:
        totals[each.ending] += each.runners
    if as_json:
        show_json(dict(totals.most_common()))
        return
    table(
        ["ENDING", "RUNNERS", prose("MEANS", whole=True)],
        ((ending, count, ending.meaning) for ending, count in totals.most_common()),
        empty="No runner ended in that time.",
    )
