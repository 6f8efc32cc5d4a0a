"""`paddock jobs`"""

from __future__ import annotations

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
    with_explanations,
)
from paddock.cli.options import AsJson, Config, DataDir
from paddock.cli.output import show_json, table
from paddock.domain.reading.filters import JobFilter, Paging
from paddock.domain.reading.rows import JobLine
from paddock.domain.states import JobState

app = typer.Typer(
    help="List jobs, and why they wait. `paddock why NUMBER` explains one job.",
    cls=Listing,
    rich_markup_mode=None,
)


@app.command("list")
def list_(
    status: Annotated[JobState | None, typer.Option(help="Only those in this state.")] = None,
    account: Annotated[str | None, typer.Option(metavar="LOGIN")] = None,
    repository: Annotated[str | None, typer.Option(metavar="OWNER/NAME")] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL")] = None,
    conclusion: Annotated[
        str | None, typer.Option(metavar="WORD", help="success, failure, cancelled, …")
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Those no pool takes.")] = False,
    limit: Limit = DEFAULT_LIMIT,
    after: Cursor = None,
    as_json: AsJson = False,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    """List jobs, the newest first.

    Examples:

        paddock jobs --status queued

        paddock jobs --account acme --conclusion failure -n 10

        paddock jobs --refused --json
    """
    wanted = JobFilter(
        status=status,
        account=account,
        repository=repository,
        pool=pool,
        conclusion=conclusion,
        refused=refused,
    )
    page = with_explanations(
        lambda explanations: explanations.list_jobs(wanted, Paging(limit=limit, cursor=after)),
        config=config,
        data_dir=data_dir,
    )
    there_is_more(page)
    if as_json:
        show_json(page.items)
        return
    table(
        ["JOB", "NAME", "REPOSITORY", "STATUS", "QUEUED", "POOL", "RUNNER", prose("WHY")],
        (
            (
                job.id,
                job.name,
                job.repository,
                job.conclusion or job.status,
                ago(job.queued_at),
                job.pool,
                job.pod or job.executor,
                _why(job),
            )
            for job in page.items
        ),
        empty="No job matches.",
    )


def _why(job: JobLine) -> str | None:
    if job.waits_because is not None:
        return job.waits_because
    return f"untrusted: {job.trust_why}" if job.trusted is False else None
