"""paddock's rules for Pods beside Kubernetes' own: the admission of Pod Security, level baseline."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from paddock.fleet.kube import shapes
from paddock.fleet.kube.setup import placement
from paddock.fleet.kube.shapes import TemplateRefused, manifest
from tests.support.kube import Installed, order
from tests.support.pod_security import baseline
from tests.support.pod_templates import BASELINE, HARMLESS, Feature, Json, templates
from tools.cluster.api import Refused

EXAMPLES = 4
#: Kubernetes finds Pods with these invalid before Pod Security is asked: for Windows only; not without
#: a runtime class.
INVALID = {"hostProcess", "overhead"}


def drawn(feature: Feature) -> list[Json]:
    """Some templates with this feature, the same in every run."""
    found: list[Json] = []

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(templates(feature))
    def draw(template: Json) -> None:
        found.append(template)

    draw()
    return found


@pytest.fixture
async def baseline_place(place: Installed) -> Installed:
    await place.api.apply(
        f"/api/v1/namespaces/{place.namespace}",
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}},
        },
    )
    return place


async def admitted(place: Installed, pod: Json) -> bool | None:
    """`None` if Kubernetes finds it invalid at every level."""
    try:
        await place.api.request("POST", place.pods, pod, query={"dryRun": "All"})
    except Refused as refused:
        return False if "violates PodSecurity" in str(refused) else None
    return True


@pytest.mark.parametrize("feature", [*BASELINE, *HARMLESS], ids=repr)
async def test_what_admission_refuses_is_refused_and_what_is_accepted_is_admitted(
    feature: Feature, baseline_place: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I63"""
    settled = placement(baseline_place.settings())
    verdicts: list[bool] = []
    for number, template in enumerate(drawn(feature)):
        asked = order(f"pod-{number}", {"template": template})
        refused = None
        try:
            manifest(asked, settled)
        except TemplateRefused as error:
            refused = str(error)
        with monkeypatch.context() as without_rules:
            without_rules.setattr(shapes, "refusal", lambda *_: None)
            pod: dict[str, Any] = manifest(asked, settled)
        verdict = await admitted(baseline_place, pod)
        if verdict is None:
            continue
        verdicts.append(verdict)
        assert (refused is None) == verdict, (refused, pod)
        # The check that the other tests rely on says the same.
        assert (baseline(pod) == []) == verdict
    if feature.name not in INVALID:
        assert verdicts, "Kubernetes found all of them invalid: nothing was compared"
