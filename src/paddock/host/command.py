"""`bootstrap`: its options, and the paths on a Mac."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from paddock.host import VERSION
from paddock.host.bootstrap import Bootstrap, anchor
from paddock.host.configuration import DEFAULT_FILE, Configuration, ConfigurationRefused, read
from paddock.host.launchd import STARTED_AS, LaunchdJobs
from paddock.host.packet_filter import PacketFilter
from paddock.host.reports import ClusterReports, Report
from paddock.host.retrying import Retrying
from paddock.host.tools import Tool

#: With the pauses between them some fifteen seconds: an operator who runs it by hand waits for it.
_ATTEMPTS: Final = 5


def main(arguments: list[str]) -> int:
    options = _options().parse_args(arguments)
    configured = partial(read, options.config)
    if options.dry_run:
        return _show(configured)
    if not options.keep and (refused := _refused(configured)):
        _say(refused)  # no retry by hand: a wrong configuration does not correct itself
        return 1
    if options.pfctl == ["/sbin/pfctl"] and os.geteuid() != 0:
        _say("pf's rules are root's to change: run it with sudo.")
        return 1
    keeping = Retrying(
        attempt=_bootstrap(options).attempt,
        reports=_Reports(configured),
        now=lambda: datetime.now(UTC),
        sleep=time.sleep,
        say=_say,
    )
    try:
        if options.keep:
            keeping.for_ever()
        return 0 if keeping.until_it_succeeds(options.attempts).failed is None else 1
    except KeyboardInterrupt:
        return 130


class _Reports:
    """Reports to the cluster that the configuration names at that moment, if it names one."""

    def __init__(self, configured: partial[Configuration]) -> None:
        self._configured = configured
        self._last: Configuration | None = None

    def send(self, report: Report) -> None:
        # If the configuration is refused, report that to the cluster of the last valid one.
        with suppress(ConfigurationRefused):
            self._last = self._configured()
        if self._last is not None and self._last.cluster is not None:
            ClusterReports(self._last.cluster, self._last.node).send(report)


def _bootstrap(options: argparse.Namespace) -> Bootstrap:
    root: Path = options.root
    return Bootstrap(
        read=partial(read, options.config),
        file=options.config.absolute(),
        lock=root / "var/run/paddock-host.lock",
        filtering=PacketFilter(pfctl=Tool(options.pfctl), root=root / "etc"),
        launching=LaunchdJobs(
            launchctl=Tool(options.launchctl),
            daemons=root / "Library/LaunchDaemons",
            ours=root / "etc/paddock/launch",
            logs=root / "var/log/paddock",
            started_as=os.environ.get(STARTED_AS),
        ),
        reload=options.reload,
    )


def _refused(configured: partial[Configuration]) -> str | None:
    try:
        cluster = configured().cluster
    except ConfigurationRefused as error:
        return str(error)
    if cluster is None:
        _say("[kubernetes] is not configured: no Node's condition reports how this goes.")
    return None


def _show(configured: partial[Configuration]) -> int:
    try:
        sys.stdout.write(anchor(configured()).text)
    except ConfigurationRefused as error:
        _say(str(error))
        return 1
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="paddock host")
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser(
        "bootstrap",
        help="set up packet-filter rules and launchd jobs, and report the result to the cluster",
        description="Sets up this Mac to run runners' virtual machines. It may be run again at any "
        "time, and does only what is not so already.",
    )
    one.add_argument("--config", type=Path, default=DEFAULT_FILE, help=f"default: {DEFAULT_FILE}")
    one.add_argument("--keep", action="store_true", help="look again for ever; launchd runs it so")
    one.add_argument(
        "--attempts", type=int, default=_ATTEMPTS, metavar="N", help=f"default: {_ATTEMPTS}"
    )
    one.add_argument(
        "--reload",
        action="store_true",
        help="start the program for virtual machines again where its description changed; drain the "
        "host before, since that ends what runs in them",
    )
    one.add_argument("--dry-run", action="store_true", help="print the rules and change nothing")
    # For tests and for unusual Macs.
    one.add_argument("--root", type=Path, default=Path("/"), help=argparse.SUPPRESS)
    one.add_argument("--pfctl", nargs="+", default=["/sbin/pfctl"], help=argparse.SUPPRESS)
    one.add_argument("--launchctl", nargs="+", default=["/bin/launchctl"], help=argparse.SUPPRESS)
    return parser


def _say(line: str) -> None:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sys.stderr.write(f"{at} {line}\n")
    sys.stderr.flush()
