"""`deploy/image/image.toml`, and the Dockerfile made from it."""

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
    user: int
    entrypoint: list[str]
    environment: dict[str, str]

    @staticmethod
    def read() -> Description:
        text = (DIRECTORY / "image.toml").read_text("utf-8")
        return msgspec.convert(tomllib.loads(text), Description)


def dockerfile(of: Description) -> str:
    packages = " \\\n      ".join(of.packages)
    environment = " \\\n    ".join(f"{key}={value}" for key, value in of.environment.items())
    return f"""\
# Written by `python -m tools.image dockerfile` from image.toml; do not edit. In a checkout:
#   docker build --build-arg BASE_DIGEST=sha256:… --file deploy/image/Dockerfile --tag paddock .
# The digest has no default: the builder names the base, and Docker verifies it. Debian's newest:
#   docker buildx imagetools inspect debian:{of.release}-slim --format '{{{{.Manifest.Digest}}}}'
ARG BASE_DIGEST
FROM debian:{of.release}-slim@${{BASE_DIGEST}} AS files
RUN apt-get update && apt-get install --yes --no-install-recommends \\
      binutils python3 python3-pip
WORKDIR /checkout
COPY {ROOT_SCRIPT} deploy/image/
COPY requirements/run.lock requirements/
RUN sh {ROOT_SCRIPT} base /image \\
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
