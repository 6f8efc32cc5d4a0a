"""`python -m paddock.fakes.github`: a stand-alone fake GitHub to experiment with."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import secrets
import signal
import sys
from pathlib import Path

from paddock.fakes.github.keys import private_key_at, public_half
from paddock.fakes.github.model import FakeGitHub
from paddock.fakes.github.server import serving, wall_clock


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m paddock.fakes.github", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:8800", metavar="HOST:PORT")
    parser.add_argument("--app-id", type=int, default=1)
    parser.add_argument(
        "--private-key",
        type=Path,
        default=Path("fake-github-app.pem"),
        help="the App's key; made if there is no such file",
    )
    parser.add_argument("--webhook-url", help="where webhooks go; without it, nowhere")
    parser.add_argument("--webhook-secret", default="secret")
    parser.add_argument(
        "--repository",
        action="append",
        metavar="ORG/NAME",
        help="an organisation's repository to begin with; may be repeated",
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    host, _, port = arguments.listen.rpartition(":")
    if not host or not port.isdigit():
        parser.error(f"--listen takes HOST:PORT, not {arguments.listen!r}")
    for repository in arguments.repository or ():
        if repository.count("/") != 1:
            parser.error(f"--repository takes ORG/NAME, not {repository!r}")
    return arguments


def _scene(github: FakeGitHub, arguments: argparse.Namespace) -> dict[str, object]:
    app = github.accounts.add_app(
        "paddock",
        app_id=arguments.app_id,
        public_keys=[public_half(private_key_at(arguments.private_key))],
        webhook_secret=arguments.webhook_secret,
        webhook_url=arguments.webhook_url,
    )
    installations = {}
    for full_name in arguments.repository or ["octo-org/hello"]:
        login, _, name = full_name.partition("/")
        account = github.world.account(login) or github.accounts.add_organization(login)
        github.accounts.add_repository(account, name)
        if login not in installations:
            installations[login] = github.accounts.install(app, account).id
    return {
        "app_id": app.id,
        "installations": installations,
        "private_key": str(arguments.private_key),
    }


async def _serve(arguments: argparse.Namespace) -> None:
    host, _, port = arguments.listen.rpartition(":")
    github = FakeGitHub(now=wall_clock, rng=random.Random(arguments.seed))  # noqa: S311
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    secret = secrets.token_hex(16)
    async with serving(github, host=host, port=int(port), control_secret=secret) as url:
        scene = {"url": url, "control_secret": secret, **_scene(github, arguments)}
        sys.stdout.write(json.dumps(scene) + "\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    arguments = _arguments()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_serve(arguments))
    except OSError as error:
        sys.exit(f"The fake GitHub cannot run: {error}")
