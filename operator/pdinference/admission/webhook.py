"""The webhook's HTTP side."""

import asyncio
import json
import logging
from collections.abc import Iterable

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from pdinference.admission.review import NotAReviewError, reviewed
from pdinference.api import names
from pdinference.manifests import RenderSettings

_LOG = logging.getLogger(__name__)
PATH = "/validate"
EARLY_PATH = "/validate-early"
"""Called before the API server compares an object with the schema, so that its refusal is not the first of several."""
WEBHOOK_RULES = {
    "apiGroups": [names.GROUP],
    "apiVersions": [names.VERSION],
    "operations": ["CREATE", "UPDATE"],
    "resources": [names.PLURAL, names.BATCH_PLURAL],
    "scope": "Namespaced",
}
"""What the API server calls for. Neither status nor scale is among it."""


def admission_routes(settings: RenderSettings, registry: CollectorRegistry) -> Iterable[web.AbstractRouteDef]:
    """What to add to the HTTPS server.

    Args:
        settings: What the operator was installed with.
        registry: Gets a count of reviews.
    """
    reviews = Counter(
        "pdinference_admission_reviews", "Answers of the webhook, by result (allowed, refused).", ["result"],
        registry=registry,
    )  # fmt: skip

    async def answered(request: web.Request, *, early: bool) -> web.Response:
        try:
            # In a thread: the plan of a huge model with all its remedies takes seconds, and others want answers too.
            answer = await asyncio.to_thread(reviewed, await request.json(), settings, early=early)
        except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, NotAReviewError) as error:
            return web.Response(status=400, text=f"{error}\n")
        allowed = answer["response"]["allowed"]
        if not (early and allowed):  # it comes again
            reviews.labels("allowed" if allowed else "refused").inc()
        if not allowed:
            _LOG.info("Refused: %s", answer["response"]["status"]["message"].strip())
        return web.json_response(answer)

    async def validate(request: web.Request) -> web.Response:
        return await answered(request, early=False)

    async def validate_early(request: web.Request) -> web.Response:
        return await answered(request, early=True)

    return [web.post(PATH, validate), web.post(EARLY_PATH, validate_early)]
