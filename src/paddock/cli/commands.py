"""The list of commands. Each is imported only when it is called: `paddock version` need not import the
server."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

#: By name: the command's module and function, and its line in the list of commands.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "up": ("up:up", "Run all of paddock on this machine, with a PostgreSQL of its own."),
    "serve": ("serve:serve", "Run paddock for production: one replica of any number."),
    "migrate": ("migrate:migrate", "Bring the database's schema up to this version."),
    "doctor": ("doctor:doctor", "Check everything that paddock depends on."),
    "why": ("why:why", "Explain the state of a job, a runner or a Pod."),
    "top": ("top:top", "Watch the fleet live."),
    "jobs": ("jobs:app", "List jobs, and why they wait."),
    "runners": ("runners:app", "List runners, or retire one."),
    "endings": ("endings:app", "List how runners ended, with the evidence."),
    "pools": ("pools:app", "List, change, pause and explain pools."),
    "accounts": ("accounts:app", "List accounts; set their limits, weights and pauses."),
    "deliveries": ("deliveries:app", "List received webhooks, or retry dead ones."),
    "pause": ("pause:pause", "Stop claiming runners, for all accounts; running jobs go on."),
    "resume": ("pause:resume", "Claim runners again."),
    "rules": ("rules:rules", "Print the rules of recovery: what each looks for and does."),
    "drain": ("drain:drain", "Delete every pool of the cluster, before uninstalling."),
    "host": ("host:app", "Set up a Mac to run runners' virtual machines."),
    "version": ("app:version", "Print the version."),
}


class Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        return _command(cmd_name, getattr(import_module(f"paddock.cli.{module}"), name))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in COMMANDS.items()])


def _command(name: str, found: typer.Typer | Callable[..., Any]) -> Any:
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(found)
    return typer.main.get_command(alone)
