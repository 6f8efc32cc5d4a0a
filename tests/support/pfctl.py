"""Replaces macOS' pfctl, as a program of its own.

Every attempt starts it some ten times, so it imports as little as it can. It knows the parts of pf
that matter here. Rules of an anchor are replaced as a whole or not at all. Tables outlive that, and a
table that exists cannot be defined again; only a flush removes them. The file that STAND_IN names
holds the rules in force, the calls, and the next failure.
"""

from __future__ import annotations

import json
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    State: TypeAlias = "dict[str, Any]"

_NOISE = "No ALTQ support in kernel\nALTQ related functions disabled\n"
_TABLE = re.compile(r"table <(\w+)> persist \{(.*)\}")
_RULE = re.compile(
    r"(pass|block( return| drop)?) (in|out) .+|anchor \"[\w.]+\"|(scrub|nat|rdr)-anchor .+"
)


def main(arguments: list[str]) -> int:
    path = os.environ["STAND_IN"]
    state: State = {}
    if os.path.exists(path):
        with open(path) as file:
            state = json.load(file)
    for key, value in {"anchors": {}, "calls": [], "fail": [], "enabled": False, "refs": 0}.items():
        state.setdefault(key, value)
    state["calls"].append(" ".join(arguments))
    try:
        return _run(arguments, state)
    finally:
        with open(path, "w") as file:
            json.dump(state, file)
        if (last := state.get("kill_after")) and last in " ".join(arguments):
            os.kill(os.getppid(), 9)


def _run(arguments: list[str], state: State) -> int:
    sys.stderr.write(_NOISE)
    for failure in state["fail"]:
        if failure["times"] > 0 and failure["of"] in " ".join(arguments):
            failure["times"] -= 1
            sys.stderr.write(f"{failure['words']}\n")
            return 1
    given = _given(arguments)
    if given.get("-s") == "rules" and given.get("-a", "") not in {"", *state["anchors"]}:
        sys.stderr.write("pfctl: DIOCGETRULES: Invalid argument\n")
        return 1
    anchor = state["anchors"].setdefault(given.get("-a", ""), {"rules": [], "tables": {}})
    if "-E" in given:
        state["enabled"], state["refs"] = True, state["refs"] + 1
    elif "-f" in given:
        return _load(anchor, given["-f"], only_look="-n" in given)
    elif "-F" in given:
        anchor["rules"] = []
        if given["-F"] == "all":
            anchor["tables"] = {}
    elif "-T" in given:
        if given["-t"] not in anchor["tables"]:
            sys.stderr.write("pfctl: Table does not exist.\n")
            return 255
        sys.stdout.write("".join(f"   {each}\n" for each in anchor["tables"][given["-t"]]))
    elif given.get("-s") == "rules":
        sys.stdout.write("".join(f"{rule}\n" for rule in anchor["rules"]))
    elif given.get("-s") == "info":
        sys.stdout.write(f"Status: {'Enabled' if state['enabled'] else 'Disabled'} for 0 days\n")
    return 0


def _given(arguments: list[str]) -> dict[str, str]:
    given, rest = {}, list(arguments)
    while rest:
        option = rest.pop(0)
        given[option] = "" if option in ("-n", "-E") else rest.pop(0)
    return given


def _load(anchor: State, name: str, *, only_look: bool) -> int:
    rules: list[str] = []
    tables: dict[str, list[str]] = {}
    wrong = []
    with open(name) as file:
        lines = file.read().splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        if found := _TABLE.fullmatch(line):
            tables[found[1]] = [entry.strip() for entry in found[2].split(",")]
            # The kernel refuses only the real definition, not a dry run.
            if found[1] in anchor["tables"] and not only_look:
                wrong.append(f"{name}:{number}: cannot define table {found[1]}: Resource busy")
        elif _RULE.fullmatch(line):
            rules.append(line)
        else:
            wrong.append(f"{name}:{number}: syntax error")
    if wrong:
        wrong.append("pfctl: Syntax error in config file: pf rules not loaded")
        sys.stderr.write("".join(f"{line}\n" for line in wrong))
        return 1
    if not only_look:
        anchor["rules"] = rules
        anchor["tables"].update(tables)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
