"""Whose token it is: the API server is asked (`dispatch.identity` remembers what it said)."""

from __future__ import annotations

from paddock.domain.pods import PodIdentity
from paddock.fleet.kube.api import Call, KubeApi, Resource
from paddock.fleet.kube.reviews import TokenReview, identity, review_request

_REVIEWS = Resource("tokenreviews", group="authentication.k8s.io")


class KubeReviewer:
    def __init__(self, api: KubeApi, *, namespace: str, service_account: str) -> None:
        self._api = api
        self._service_account = f"system:serviceaccount:{namespace}:{service_account}"

    async def review(self, token: str) -> PodIdentity | None:
        answer = await self._api.send(
            "POST", Call("create", _REVIEWS), review_request(token), TokenReview
        )
        return identity(answer, token, service_account=self._service_account)
