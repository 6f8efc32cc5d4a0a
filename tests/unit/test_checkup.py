"""What `paddock doctor` says of a network it may not read."""

from __future__ import annotations

import pytest

from paddock.checkup.cluster import examine_network
from paddock.checkup.finding import Health
from paddock.fleet.kube.settings import KubeSettings

DOOR = "http://paddock.paddock.svc:8789"


@pytest.mark.parametrize(
    ("settings", "health"),
    [
        (KubeSettings(), Health.WELL),
        (KubeSettings(dispatch_egress="idle-only", vitals_url=DOOR), Health.WELL),
        (KubeSettings(dispatch_egress="idle-only"), Health.POOR),
    ],
)
def test_what_idle_only_costs_is_said(settings: KubeSettings, health: Health) -> None:
    finding = examine_network(settings)
    assert finding.health is health
    assert ("vitals end" in finding.what) is (health is Health.POOR)
