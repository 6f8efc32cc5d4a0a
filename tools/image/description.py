"""`deploy/image/image.toml`, and the Dockerfile that says the same."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Final

import msgspec

CHECKOUT: Final = Path(__file__).parents[2]
DIRECTORY: Final = CHECKOUT / "deploy" / "image"
DOCKERFILE: Final = DIRECTORY / "Dockerfile"
ROOT_SCRIPT: Final = "deploy/image/root.sh"


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    #: Debian's name for it.
    release: str
    packages: list[str]
    left_out: list[str]
    user: int
    entrypoint: list[str]
    environment: dict[str, str]

    @staticmethod
    def read() -> Description:
        text = (DIRECTORY / "image.toml").read_text("utf-8")
        return msgspec.convert(tomllib.loads(text), Description)

    @property
    def base(self) -> list[str]:
        """What `root.sh` is asked for, after the directory."""
        return [" ".join(self.left_out), *self.packages]


def dockerfile(of: Description) -> str:
    packages = " \\\n      ".join(of.packages)
    environment = " \\\n    ".join(f"{key}={value}" for key, value in of.environment.items())
    return f"""\
# Written by `python -m tools.image dockerfile` from image.toml; do not edit. In a checkout:
#   docker build --file deploy/image/Dockerfile --tag paddock .
FROM debian:{of.release}-slim AS files
RUN apt-get update && apt-get install --yes --no-install-recommends \\
      binutils python3 python3-pip
WORKDIR /checkout
COPY {ROOT_SCRIPT} deploy/image/
COPY requirements/run.lock requirements/
RUN sh {ROOT_SCRIPT} base /image "{of.base[0]}" \\
      {packages}
COPY src/paddock src/paddock
RUN sh {ROOT_SCRIPT} program /image

FROM scratch
COPY --from=files /image /
ENV {environment}
USER {of.user}:{of.user}
WORKDIR /
ENTRYPOINT {json.dumps(of.entrypoint)}
"""
