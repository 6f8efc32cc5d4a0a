"""The fake runner's worker: evaluates and runs a job's steps.

It supports script steps and their shells sh, bash and python. Of the expressions it supports what
workflows mostly need: literals, values of contexts, `format`, and the status functions. A step that
needs more fails with a message.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_INTERRUPT_GRACE, _TERMINATE_GRACE = 7.5, 2.5  # a step: SIGINT, then SIGTERM, then SIGKILL

_SHELLS: Final = {
    None: ("/bin/sh", "-e", "-c"),
    "sh": ("/bin/sh", "-e", "-c"),
    "bash": ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"),
    "python": ("python3", "-c"),
}

#: The largest size of a job's log. Hundreds of these runners share a machine.
_LOG_CHARACTERS: Final = 256 << 10

_RESULTS: Final = {
    "success": "succeeded",
    "failure": "failed",
    "cancelled": "canceled",
    "skipped": "skipped",
}
_WORD: Final = re.compile(r"\s*('(?:[^']|'')*'|[A-Za-z_][\w-]*(?:\.[\w-]+)*|-?\d+(?:\.\d+)?|[(),])")


class UnknownError(Exception):
    """The job needs something that this runner does not know."""


def context(value: Any) -> Any:
    """The plain value of what a job's `contextData` has."""
    if not isinstance(value, dict):
        return value
    if value.get("t") == 1:
        return [context(each) for each in value.get("a", ())]
    return {each["k"]: context(each["v"]) for each in value.get("d", ())}


class Expressions:
    def __init__(self, contexts: dict[str, Any]) -> None:
        self.contexts = contexts
        self.status = "success"

    def token(self, token: Any) -> Any:
        """The value of a token of a job's texts."""
        if not isinstance(token, dict):
            return token
        match token.get("type", 0):
            case 0:
                return token.get("lit", "")
            case 1:
                return [self.token(each) for each in token.get("seq", ())]
            case 2:
                pairs = token.get("map", ())
                return {str(self.token(each["key"])): self.token(each["value"]) for each in pairs}
            case 3:
                return self.value(token["expr"])
            case 5:
                return token.get("bool", False)
            case 6:
                return token.get("num", 0)
            case _:
                return None

    def value(self, text: str) -> Any:
        words = _words(text)
        value = self._next(next(words, ""), words)
        if next(words, None) is not None:
            raise UnknownError(f"The expression {text!r} is not known to the fake runner.")
        return value

    def _next(self, word: str, words: Iterator[str]) -> Any:
        if word.startswith("'"):
            return word[1:-1].replace("''", "'")
        if word in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[word]
        if word[:1].isdigit() or word.startswith("-"):
            return float(word) if "." in word else int(word)
        if word.lower() in ("format", "success", "failure", "cancelled", "always"):
            return self._function(word.lower(), self._arguments(words))
        first, *rest = word.split(".")
        if first not in self.contexts:
            raise UnknownError(f"{word!r} is not known to the fake runner.")
        found = self.contexts[first]
        for name in rest:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def _arguments(self, words: Iterator[str]) -> list[Any]:
        found: list[Any] = []
        word = next(words, "") if next(words, "") == "(" else ""
        while word and word != ")":
            found.append(self._next(word, words))
            if (word := next(words, "")) == ",":
                word = next(words, "")
        if not word:
            raise UnknownError("An expression does not end.")
        return found

    def _function(self, name: str, arguments: list[Any]) -> Any:
        match name:
            case "format":
                return _formatted(str(arguments[0]), [text(each) for each in arguments[1:]])
            case "always":
                return True
            case _:
                return self.status == name


def _words(expression: str) -> Iterator[str]:
    at = 0
    while at < len(expression.rstrip()):
        found = _WORD.match(expression, at)
        if found is None:
            raise UnknownError(f"The expression {expression!r} is not known to the fake runner.")
        at = found.end()
        yield found[1]


def _formatted(pattern: str, values: list[str]) -> str:
    def one(found: re.Match[str]) -> str:
        return values[int(found[1])] if found[1] else found[0][0]

    return re.sub(r"\{\{|\}\}|\{(\d+)\}", one, pattern)


def text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Steps(threading.Thread):
    """Runs the job's steps one after the other and puts the result on `events`."""

    def __init__(self, job: dict[str, Any], events: queue.SimpleQueue[Any], speedup: float) -> None:
        super().__init__(daemon=True)
        self._job = job
        self._events = events
        self._speedup = speedup
        self._cancelled = threading.Event()
        variables = job.get("variables") or {}
        self._secrets = {k: v["value"] for k, v in variables.items() if v.get("isSecret")}
        contexts = {k: context(v) for k, v in (job.get("contextData") or {}).items()}
        contexts["runner"] = {"os": "Linux", "name": "", "temp": "/tmp"}  # noqa: S108
        contexts["secrets"], contexts["env"] = self._secrets, {}
        self._expressions = Expressions(contexts)
        self._log: list[str] = []
        self._logged = 0
        #: As they are reported.
        self.ends: list[dict[str, Any]] = []

    @property
    def log(self) -> str:
        return "".join(self._log)

    def cancel(self) -> None:
        self._cancelled.set()

    def run(self) -> None:
        expressions = self._expressions
        try:
            for each in self._job.get("environmentVariables") or ():
                expressions.contexts["env"] |= expressions.token(each)
        except UnknownError as error:
            self._say(str(error))
            expressions.status = "failure"
        if hook := os.environ.get("ACTIONS_RUNNER_HOOK_JOB_STARTED"):
            self._one({"name": "Set up runner"}, {"script": f". {hook}"})
        for step in self._job.get("steps") or ():
            self._one(step, None)
        self._events.put(("finished", expressions.status))

    def _one(self, step: dict[str, Any], inputs: dict[str, Any] | None) -> None:
        expressions, began = self._expressions, _stamp()
        name, conclusion = str(step["name"]), "skipped"
        outer = expressions.contexts["env"]
        try:
            name = text(expressions.token(step.get("displayNameToken"))) or name
            if self._cancelled.is_set():
                expressions.status = "cancelled"
            if expressions.value(step.get("condition") or "success()"):
                expressions.contexts["env"] = outer | (
                    expressions.token(step.get("environment")) or {}
                )
                conclusion = self._run_step(step, inputs or expressions.token(step["inputs"]))
        except UnknownError as error:
            self._say(str(error))
            conclusion = "failure"
        finally:
            expressions.contexts["env"] = outer
        if conclusion == "cancelled" or (
            conclusion == "failure" and not expressions.token(step.get("continueOnError"))
        ):
            expressions.status = conclusion
        self.ends.append(
            {
                "external_id": step.get("id", ""),
                "number": len(self.ends) + 2,
                "name": name,
                "status": "completed",
                "conclusion": _RESULTS[conclusion],
                "started_at": began,
                "completed_at": _stamp(),
            }
        )

    def _run_step(self, step: dict[str, Any], inputs: dict[str, Any]) -> str:
        if self._cancelled.is_set():
            return "cancelled"
        shell = inputs.get("shell")
        if shell not in _SHELLS:
            raise UnknownError(f"The fake runner has no shell {shell!r}.")
        minutes = self._expressions.token(step.get("timeoutInMinutes"))
        until = None if minutes is None else time.monotonic() + 60 * float(minutes)
        output = _step_output()
        try:
            process = subprocess.Popen(
                [*_SHELLS[shell], text(inputs["script"])],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                cwd=inputs.get("workingDirectory"),
            )
        except OSError as error:
            self._say(f"The step cannot start: {error}")
            return "failure"
        if output is not None:
            # Processes that a step leaves behind may hold the pipe: the runner does not wait for its
            # end.
            reader = threading.Thread(target=self._read, args=(process,), daemon=True)
            reader.start()
        conclusion = self._watch(process, until)
        if output is not None and conclusion != "cancelled":
            reader.join(timeout=0.2)
        return conclusion

    def _watch(self, process: subprocess.Popen[bytes], until: float | None) -> str:
        while process.poll() is None:
            if self._cancelled.wait(0.02):
                self._stop(process)
                return "cancelled"
            if until is not None and time.monotonic() > until:
                self._stop(process)
                return "failure"
        return "success" if process.returncode == 0 else "failure"

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._say(line.decode(errors="replace").rstrip("\n"))

    def _say(self, line: str) -> None:
        for secret in self._secrets.values():
            if secret:
                line = line.replace(secret, "***")
        if self._logged < _LOG_CHARACTERS:
            self._logged += len(line)
            self._log.append(f"{_stamp()} {line[:_LOG_CHARACTERS]}\n")

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        tree = _tree(process.pid)
        for number, grace in (
            (signal.SIGINT, _INTERRUPT_GRACE),
            (signal.SIGTERM, _TERMINATE_GRACE),
        ):
            _signal_all(tree, number)
            try:
                process.wait(timeout=grace / self._speedup)
                break
            except subprocess.TimeoutExpired:
                continue
        # Also processes that the step left behind: the real runner kills orphans when a job ends.
        _signal_all(tree, signal.SIGKILL)
        process.wait()

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ACTIONS_RUNNER_", "PADDOCK_"))
        }
        github = self._expressions.contexts.get("github") or {}
        env = self._expressions.contexts["env"]
        return {
            **kept,
            **{f"GITHUB_{k.upper()}": text(v) for k, v in github.items() if isinstance(v, str)},
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            **{name: text(value) for name, value in env.items()},
        }


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _step_output() -> int | None:
    """A step's output goes to GitHub, not to the listener's; unless diagnostics are asked for."""
    return None if os.environ.get("ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT") else subprocess.PIPE


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _tree(root: int) -> list[int]:
    """The process and its descendants. A process group would be easier to signal, but the steps would
    then survive a kill of the runner's own group."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it ended while we looked
        children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo.extend(children.get(pid, ()))
    return found
