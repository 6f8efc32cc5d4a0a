"""`python -m tools.chart`: write the parts of deploy/chart that come from elsewhere."""

from __future__ import annotations

import argparse
import sys

from tools.chart.parts import outdated


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.chart", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    check = parser.parse_args(arguments).check
    found = outdated()
    for file, text in found.items():
        if not check:
            file.write_text(text, "utf-8")
        print(f"{file} {'is out of date' if check else 'written'}", file=sys.stderr)  # noqa: T201
    return 1 if found and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
