"""`python -m tools.image build FILE`: the image; `dockerfile`: write deploy/image/Dockerfile."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import paddock
from tools.cluster.say import say
from tools.image.building import CannotBuild, write
from tools.image.description import DOCKERFILE, Description, dockerfile


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.image", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="make the image from Debian's packages")
    building.add_argument("file", type=Path, help="the archive to write, like paddock.tar")
    building.add_argument("--name", default=f"paddock:{paddock.__version__}", help="%(default)s")
    commands.add_parser("dockerfile", help="write the Dockerfile")
    options = parser.parse_args(arguments)
    if options.command == "dockerfile":
        DOCKERFILE.write_text(dockerfile(Description.read()), "utf-8")
        return 0
    try:
        write(options.file, options.name)
    except CannotBuild as error:
        say(str(error))
        return 1
    say(f"{options.file}: {options.name}, {options.file.stat().st_size / 2**20:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
