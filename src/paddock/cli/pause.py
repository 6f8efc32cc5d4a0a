"""`paddock pause`, `paddock resume`"""

from __future__ import annotations

from paddock.cli.operator_commands import Why, as_operator
from paddock.cli.options import Config, DataDir
from paddock.cli.output import show


def pause(why: Why = "paused by hand", config: Config = None, data_dir: DataDir = None) -> None:
    """Give out no runners at all. Running jobs go on; waiting jobs keep their place in the queue.

    Webhooks are still accepted and recovery goes on. Every replica obeys at once. To pause one pool
    or account, use `paddock pools pause` or `paddock accounts pause`.

    Example:

        paddock pause --why "the registry is down"
    """
    done = as_operator(
        lambda operator: operator.pause_dispatch(why=why), config=config, data_dir=data_dir
    )
    show("all dispatch is paused" if done else "all dispatch was paused already")


def resume(why: Why = "resumed by hand", config: Config = None, data_dir: DataDir = None) -> None:
    """Give out runners again."""
    done = as_operator(
        lambda operator: operator.resume_dispatch(why=why), config=config, data_dir=data_dir
    )
    show("runners are given out again" if done else "dispatch was not paused")
