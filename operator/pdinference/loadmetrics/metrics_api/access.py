"""Authorization of requests: SubjectAccessReviews, as in other aggregated API servers.

Tests: tests/loadmetrics/test_metrics_rights.py
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from pdinference.cluster.client import ApiServer
from pdinference.loadmetrics.metrics_api.authentication import User

_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_REMEMBERED_S: Final = 10.0  # like Kubernetes' aggregated API servers
_MOST: Final = 1024


class AccessReview(NamedTuple):
    """A user and the resource to read."""

    user: User
    group: str
    resource: str
    namespace: str


class AccessChecker:
    """Creates SubjectAccessReviews and caches the results for a few seconds."""

    def __init__(self, api: ApiServer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._answers: OrderedDict[AccessReview, tuple[float, bool]] = OrderedDict()

    async def allows(self, review: AccessReview) -> bool:
        """Whether the user may list this resource in this namespace.

        Raises:
            ApiError: The review failed.
        """
        now = self._clock()
        known = self._answers.get(review)
        if known is not None and now - known[0] < _REMEMBERED_S:
            return known[1]
        allowed = await self._request(review)
        self._answers[review] = (now, allowed)
        self._answers.move_to_end(review)
        if len(self._answers) > _MOST:
            self._answers.popitem(last=False)
        return allowed

    async def _request(self, review: AccessReview) -> bool:
        user = review.user
        attributes = {
            "verb": "list",
            "group": review.group,
            "resource": review.resource,
            "namespace": review.namespace,
        }
        spec = {
            "user": user.name,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "resourceAttributes": attributes,
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._api.create(_PATH, body)
        return bool((answer.get("status") or {}).get("allowed", False))
