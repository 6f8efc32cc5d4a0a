"""What `paddock doctor` says of a network that it may not read, and of the certificate for Pods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from paddock.checkup.cluster import examine_network
from paddock.checkup.finding import CheckResult
from paddock.cli.doctor import examine_certificate
from paddock.fleet.kube.settings import KubeSettings
from paddock.settings import Settings
from tests.support.certificates import Authority, SecretVolume

DOOR = "http://paddock.paddock.svc:8789"


@pytest.mark.parametrize(
    ("settings", "health"),
    [
        (KubeSettings(), CheckResult.OK),
        (KubeSettings(dispatch_egress="idle-only", vitals_url=DOOR), CheckResult.OK),
        (KubeSettings(dispatch_egress="idle-only"), CheckResult.WARNING),
    ],
)
def test_what_idle_only_costs_is_said(settings: KubeSettings, health: CheckResult) -> None:
    finding = examine_network(settings)
    assert finding.health is health
    assert ("vitals end" in finding.what) is (health is CheckResult.WARNING)


NAME = "paddock.paddock.svc"
SECURE = f"https://{NAME}:8788"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("names", "valid", "kube", "health", "says"),
    [
        ([NAME], (-DAY, 60 * DAY), {}, CheckResult.OK, f"for {NAME}, until"),
        (["*.paddock.svc"], (-DAY, 60 * DAY), {}, CheckResult.OK, "until"),
        ([NAME], (-89 * DAY, 10 * DAY), {}, CheckResult.WARNING, "expires at"),
        # An hour of two is left: it is renewed every two hours.
        ([NAME], (-HOUR, HOUR), {}, CheckResult.OK, "until"),
        # It is for ten years, and a sixth of that is left, and more than a month.
        ([NAME], (-3600 * DAY, 50 * DAY), {}, CheckResult.OK, "until"),
        ([NAME], (-3600 * DAY, 20 * DAY), {}, CheckResult.WARNING, "expires at"),
        ([NAME], (-2 * DAY, -DAY), {}, CheckResult.FAILED, "is valid from"),
        (["paddock.other.svc"], (-DAY, 60 * DAY), {}, CheckResult.FAILED, f"is not for {NAME}"),
        (
            [NAME],
            (-DAY, 60 * DAY),
            {"vitals_url": "https://x:1"},
            CheckResult.FAILED,
            "is not for x",
        ),
        (
            [NAME],
            (-DAY, 60 * DAY),
            {"server_url": f"http://{NAME}:8788"},
            CheckResult.FAILED,
            "told http",
        ),
    ],
)
def test_a_certificate_that_pods_would_reject_is_told(
    tmp_path: Path,
    names: list[str],
    valid: tuple[timedelta, timedelta],
    kube: dict[str, Any],
    health: CheckResult,
    says: str,
) -> None:
    volume = SecretVolume(tmp_path)
    volume.put(Authority().issue(*names, valid_from=valid[0], valid_to=valid[1]))
    settings = Settings(
        pods_listen="0.0.0.0:8788",
        pods_certificate_file=volume.certificate,
        pods_key_file=volume.key,
        kube=KubeSettings(**{"server_url": SECURE} | kube),
    )
    finding = examine_certificate(settings, datetime.now(UTC))
    assert finding.health is health, finding
    assert says in finding.what


def test_a_certificate_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    settings = Settings(
        pods_listen="0.0.0.0:8788",
        pods_certificate_file=tmp_path / "tls.crt",
        pods_key_file=tmp_path / "tls.key",
    )
    finding = examine_certificate(settings, datetime.now(UTC))
    assert finding.health is CheckResult.FAILED
    assert f"{tmp_path}/tls.crt cannot be read" in finding.what


@pytest.mark.parametrize(
    ("url", "health"), [(f"http://{NAME}:8788", CheckResult.SKIPPED), (SECURE, CheckResult.OK)]
)
def test_whether_there_is_tls_at_all_is_told(url: str, health: CheckResult) -> None:
    finding = examine_certificate(Settings(kube=KubeSettings(server_url=url)), datetime.now(UTC))
    assert finding.health is health
    assert ("in clear text" in finding.what) is (health is CheckResult.SKIPPED)
