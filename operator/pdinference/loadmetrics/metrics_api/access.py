"""What somebody may ask for: the API server's own authorizers decide (SubjectAccessReview)."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from pdinference.cluster.client import ApiServer
from pdinference.loadmetrics.metrics_api.front_proxy import User

_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_REMEMBERED_S: Final = 10.0  # as Kubernetes' own aggregated API servers do
_MOST: Final = 1024


class Question(NamedTuple):
    """A user, and what he wants to read."""

    user: User
    group: str
    resource: str
    namespace: str


class Access:
    """Asks the API server, and remembers its answer for a few seconds."""

    def __init__(self, api: ApiServer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._answers: OrderedDict[Question, tuple[float, bool]] = OrderedDict()

    async def allows(self, question: Question) -> bool:
        """Whether the user may list this resource in this namespace.

        Raises:
            ApiError: The API server does not say.
        """
        now = self._clock()
        known = self._answers.get(question)
        if known is not None and now - known[0] < _REMEMBERED_S:
            return known[1]
        allowed = await self._ask(question)
        self._answers[question] = (now, allowed)
        self._answers.move_to_end(question)
        if len(self._answers) > _MOST:
            self._answers.popitem(last=False)
        return allowed

    async def _ask(self, question: Question) -> bool:
        user = question.user
        attributes = {
            "verb": "list",
            "group": question.group,
            "resource": question.resource,
            "namespace": question.namespace,
        }
        spec = {
            "user": user.name,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "resourceAttributes": attributes,
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._api.create(_PATH, review)
        return bool((answer.get("status") or {}).get("allowed", False))
