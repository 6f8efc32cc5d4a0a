"""Looks for known vulnerabilities of the locked dependencies, with pip-audit: `make audit`.

pip-audit says "No known vulnerabilities found" and exits with 0 also if a mirror answers 404 for every
package. So it is also asked about a package that is known to be vulnerable; without that finding the
result is rejected. Exits with 0 if there are none, 1 if there are some, and 75 (EX_TEMPFAIL) if no
service answered.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

#: What users install, and what developers do. lowest.lock has old versions on purpose.
LOCKS: Final = ("run.lock", "dev.lock", "site.lock")
SERVICES: Final = ("pypi", "osv")
#: Vulnerable since 2013 (CVE-2013-7459) and no longer maintained, so it stays so. It is not installed.
CONTROL: Final = ("pycrypto", "2.6.1")
_CONTROL_HASH: Final = "f2ce1e989b272cfcb677616763e0a2e7ec659effa67a88aa92b3a65528f60a3c"


class NotAudited(Exception):
    """The service could not be asked, or its answers are not complete; one sentence."""


def vulnerable(report: dict[str, Any]) -> list[str]:
    """The findings of a report of pip-audit, one line each. Raises NotAudited."""
    skipped = [each["name"] for each in report["dependencies"] if "skip_reason" in each]
    if skipped:
        raise NotAudited(f"it has no answer for {len(skipped)} packages, {skipped[0]} among them.")
    found = {
        (each["name"], each["version"]): [vulnerability["id"] for vulnerability in each["vulns"]]
        for each in report["dependencies"]
    }
    if not found.pop(CONTROL, None):
        raise NotAudited(f"it does not report the known vulnerability of {'=='.join(CONTROL)}.")
    return [
        f"{name} {version}: {', '.join(ids)}"
        for (name, version), ids in sorted(found.items())
        if ids
    ]


def ask(program: str, service: str, files: list[str]) -> dict[str, Any]:
    options = ["--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off"]
    requirements = [word for file in files for word in ("--requirement", file)]
    done = subprocess.run(
        [program, "--vulnerability-service", service, *options, *requirements],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.strip().splitlines() or ["no message"]
        raise NotAudited(f"pip-audit failed: {last[-1][:200]}") from None
    return report


def main(program: str) -> int:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as control:
        control.write(f"{'=='.join(CONTROL)} --hash=sha256:{_CONTROL_HASH}\n")
        control.flush()
        files = [control.name, *(str(Path("requirements", lock)) for lock in LOCKS)]
        for service in SERVICES:
            try:
                found = vulnerable(ask(program, service, files))
            except NotAudited as error:
                sys.stderr.write(f"audit: {service} cannot be used: {error}\n")
                continue
            for line in found:
                sys.stdout.write(f"{line}\n")
            sys.stdout.write(
                f"audit: {len(found)} packages with known vulnerabilities ({service})\n"
            )
            return 1 if found else 0
    sys.stderr.write("audit: NOTHING WAS AUDITED: no vulnerability service could be asked.\n")
    return os.EX_TEMPFAIL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
