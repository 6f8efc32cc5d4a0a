"""Which modules may call which operations, checked on the code itself."""

from __future__ import annotations

import ast
from importlib import resources
from pathlib import Path

_ROOT = Path(str(resources.files("paddock")))


def _calls(path: Path, method: str) -> list[int]:
    tree = ast.parse(path.read_text("utf-8"))
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
        and any(keyword.arg == "uid" for keyword in node.keywords)
    ]


def _callers(method: str) -> set[str]:
    """Callers outside the adapters, which are the fleet itself."""
    return {
        str(path.relative_to(_ROOT))
        for path in sorted(_ROOT.rglob("*.py"))
        if path.relative_to(_ROOT).parts[0] != "fleet" and _calls(path, method)
    }


def test_only_retire_asks_pods_to_go_and_only_conclude_takes_them_away() -> None:
    """I35: any other module that wants a Pod gone fences it."""
    assert _callers("delete_live_pod") == {"recovery/retire.py"}
    assert _callers("reap") == {"forensics/conclusion.py"}


def test_reaping_is_left_to_those_who_saw_the_end() -> None:
    """`reap` is for Pods that ended and whose end is recorded."""
    callers = {
        str(path.relative_to(_ROOT))
        for path in sorted(_ROOT.rglob("*.py"))
        if any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "reap"
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
        )
    }
    assert callers == {"forensics/conclusion.py", "recovery/adopt.py"}
