"""The documents of tests/hostile, sent to a real API server with the webhook of an operator process."""

import asyncio
import json
import random
from collections.abc import Iterable

from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import BATCH, RESOURCE
from tests.hostile import seeds
from tests.hostile.corpus import REFUSED
from tests.hostile.entries import Document, spec_of
from tests.hostile.mutations import mutated
from tests.hostile.pod_templates import HOSTILE as OVERLAYS
from tests.integration.operators import Operators
from tests.integration.webhook import Webhook
from tests.integration.world import World
from tests.waiting import until

_MUTATED = 400
_AT_ONCE = 8
_DRY_RUN = "?dryRun=All&fieldValidation=Strict"
_MOST_MEMORY = 256 * 2**20


class Refusals:
    """Sends documents, without storing them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def of_all(self, documents: Iterable[Document]) -> list[ApiError | None]:
        """The API server's messages; None for accepted documents."""
        return await asyncio.gather(*(self._sent(document) for document in documents))

    async def _sent(self, document: Document) -> ApiError | None:
        kind = BATCH if document.get("kind") == "PDBatch" else RESOURCE
        async with self._slots:
            try:
                await self._world.api.create(kind.path(self._world.namespace) + _DRY_RUN, self._here(document))
            except ApiError as error:
                return error
            return None

    def _here(self, document: Document) -> Document:
        metadata = document.get("metadata")
        if not isinstance(metadata, dict):
            return document
        here = {"namespace": self._world.namespace} if metadata.get("namespace") == "models" else {}
        return {**document, "metadata": {**metadata, **here}}


def survives_json(document: Document) -> bool:
    """Whether it reaches the API server as it is: JSON has no NaN, and keys are text."""
    try:
        text = json.dumps(document, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (ValueError, RecursionError):
        return False
    return bool(json.loads(text) == document)


async def test_a_hostile_document_is_refused_by_the_api_server(
    world: World, webhook: Webhook, operators: Operators
) -> None:
    documents = {name: entry.document for name, entry in REFUSED.items() if entry.model is None}
    documents |= {
        f"overlay-{name}": seeds.resource(spec_of("decode.podTemplate", overlay))
        for name, (overlay, _) in OVERLAYS.items()
    }
    documents = {name: document for name, document in documents.items() if survives_json(document)}
    assert len(documents) > 250
    await operators.start(*webhook.flags)
    await webhook.insists()
    answers = await Refusals(world).of_all(documents.values())
    wrong = {
        name: answer and (answer.status, answer.message[:300])
        for name, answer in zip(documents, answers, strict=True)
        if not _is_refusal(answer)
    }
    assert wrong == {}


async def test_no_mutated_document_stops_the_operator_or_the_others(
    world: World, webhook: Webhook, operators: Operators
) -> None:
    operator = await operators.start(*webhook.flags)
    await webhook.insists()
    chance = random.Random(1)  # noqa: S311 - the same documents each time
    documents = (mutated(chance.choice(SEEDS), chance) for _ in range(_MUTATED))
    answers = await Refusals(world).of_all(document for document in documents if survives_json(document))
    assert len(answers) > _MUTATED / 2
    unfit = [answer for answer in answers if answer is not None and not _is_refusal(answer)]
    assert [(answer.status, answer.message[:300]) for answer in unfit] == []
    assert any(answer is None for answer in answers), "some are harmless"
    assert operator.running
    assert await operator.healthy()
    assert operator.most_memory() < _MOST_MEMORY
    await world.apply("mine")
    await until(lambda: world.complete("mine"), "another resource gets its children")


SEEDS = seeds.documents()


def _is_refusal(answer: ApiError | None) -> bool:
    """Whether the API server or the webhook rejected the document, and neither failed."""
    return answer is not None and 400 <= answer.status < 500 and "failed calling webhook" not in answer.message
