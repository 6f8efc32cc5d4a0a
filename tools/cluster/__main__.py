"""`python -m tools.cluster up|down|status|…`; `make cluster` and `make cluster-down` call it."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from tools.cluster import binaries, images, node
from tools.cluster.cluster import Cluster, down, up
from tools.cluster.errors import ClusterError, Missing
from tools.cluster.lock import lock
from tools.cluster.say import say


def main(arguments: list[str]) -> int:
    options = _options().parse_args(arguments)
    try:
        return asyncio.run(_run(options))
    except ClusterError as error:
        say(str(error))
        return 1


async def _run(options: argparse.Namespace) -> int:
    match options.command:
        case "up":
            _tell(await up(build=not options.no_build, with_node=not options.no_node))
        case "down":
            say("stopped" if await down(force=options.force) else "none was running")
        case "status":
            _tell(_running())
        case "built":
            _check_built()
        case "ready":
            _check_built()
            if binaries.find("kubelet") is not None:
                node.check_tools()
        case "build":
            binaries.build(*options.programs)
        case "lock":
            lock(*options.modules)
        case "images":
            images.import_all(_running().layout)
        case "kubectl":
            cluster = _running()
            program = cluster.facts.programs["kubectl"]
            arguments = [program, f"--kubeconfig={cluster.kubeconfig}", *options.arguments]
            os.execv(program, arguments)  # noqa: S606  no shell is wanted
        case what:
            await _change(_running(), what, options.part)
    return 0


async def _change(cluster: Cluster, what: str, part: str) -> None:
    if part not in cluster.daemons:
        raise ClusterError(f"There is no {part}; the parts are {', '.join(cluster.daemons)}.")
    if what != "start":
        await cluster.stop(part)
    if what != "stop":
        await cluster.start(part)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("up", help="build what is missing and start it")
    starting.add_argument("--no-build", action="store_true", help="only what is there already")
    starting.add_argument("--no-node", action="store_true", help="the control plane alone")
    stopping = commands.add_parser("down", help="stop it; its logs stay until the next start")
    stopping.add_argument("--force", action="store_true", help="although tests run on it")
    commands.add_parser("status", help="what runs, and how to reach it")
    commands.add_parser("built", help="whether there is nothing to build")
    commands.add_parser("ready", help="the same, and whether it could have a node")
    building = commands.add_parser("build", help="build what is missing")
    building.add_argument("programs", nargs="*", metavar="PROGRAM")
    locking = commands.add_parser(
        "lock", help="write the lock files for the versions in binaries.py"
    )
    locking.add_argument("modules", nargs="*", metavar="MODULE")
    commands.add_parser("images", help="make and import the images anew")
    kubectl = commands.add_parser("kubectl", help="kubectl, as administrator")
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER)
    for what in ("stop", "start", "restart"):
        commands.add_parser(what, help=f"{what} one part").add_argument("part")
    return parser


def _running() -> Cluster:
    cluster = Cluster.running()
    if cluster is None:
        raise Missing("No cluster is running: make cluster starts one.")
    return cluster


def _tell(cluster: Cluster) -> None:
    for name, daemon in cluster.daemons.items():
        pid = daemon.pid()
        say(f"  {name:19}{'stopped' if pid is None else f'process {pid}'}")
    say(f"logs in {cluster.layout.logs}")
    say(f"export KUBECONFIG={cluster.kubeconfig}")


def _check_built() -> None:
    """Raises unless all programs exist. `KUBEBUILDER_ASSETS` often holds a control plane alone."""
    alone = bool(os.environ.get("KUBEBUILDER_ASSETS"))
    for command in binaries.CONTROL_PLANE if alone else binaries.NEEDED:
        binaries.require(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
