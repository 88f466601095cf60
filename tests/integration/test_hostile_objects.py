"""Objects stored without the webhook: the operator starts, reports their problems, and serves the others."""

import asyncio
import json

import pytest

from e2e.cluster.errors import ClusterError
from pdinference.cluster.kinds import RESOURCE
from tests.integration.operator_process import OperatorProcess
from tests.integration.operators import Operators
from tests.integration.webhook import Webhook
from tests.integration.world import World
from tests.waiting import until

MODEL = '"model":{"source":{"path":"/models/tiny"}}'
VALID = f"{{{MODEL}}}"


def overlay(spec: str) -> str:
    return f'{{{MODEL},"decode":{{"podTemplate":{{"spec":{spec}}}}}}}'


DEEP = overlay('{"a":' * 1_500 + "1" + "}" * 1_500)
LARGE = overlay('{"a":"%s"}' % ("y" * 1_300_000))
MANY = overlay('{"a":[%s{}]}' % ("{}," * 60_000))
TOO_DEEP = "spec.decode.podTemplate.spec.a.a: is nested deeper than 64 levels"
TOO_LARGE = "bytes of JSON; the limit is 131072 bytes"
TOO_MANY = "exceeds the limit of 16384 values in a document"


class Hostile:
    """Writes and reads what Python's parsers cannot, by kubectl."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._path = RESOURCE.path(world.namespace)

    async def create(self, name: str, spec: str) -> None:
        text = '{"apiVersion":"pdinference.io/v1alpha1","kind":"PDInference","metadata":{"name":"%s"},"spec":%s}'
        await self._kubectl("create", "--raw", self._path, "-f", "-", stdin=text % (name, spec))

    async def replace(self, name: str, spec: str) -> None:
        text = '{"apiVersion":"pdinference.io/v1alpha1","kind":"PDInference","metadata":{"name":"%s"},"spec":%s}'

        async def replaced() -> bool:
            try:
                await self._kubectl("replace", "-n", self._world.namespace, "-f", "-", stdin=text % (name, spec))
            except ClusterError as error:  # the operator wrote the status between kubectl's look and its write
                if "Conflict" not in str(error):
                    raise
                return False
            return True

        await until(replaced, f"{name} is replaced")

    async def says(self, name: str, words: str) -> None:
        """Wait until the status reports it."""
        query = '{.status.conditions[?(@.type=="Progressing")].reason}: {.status.conditions[*].message}'

        async def said() -> bool:
            found = await self._kubectl(
                *("get", "pdinference", name, "-n", self._world.namespace, "-o", f"jsonpath={query}")
            )
            return found.startswith("InvalidSpec") and words in found

        await until(said, f"the status of {name} says: {words}")

    async def _kubectl(self, *words: str, stdin: str | None = None) -> str:
        return await asyncio.to_thread(self._world.cluster.kubectl, *words, stdin=stdin)


@pytest.fixture
def hostile(world: World) -> Hostile:
    return Hostile(world)


async def serves(world: World, name: str, **spec: object) -> None:
    await world.apply(name, **spec)
    await until(lambda: world.complete(name), f"the children of {name}")


async def test_the_operator_starts_and_watches_beside_what_cannot_be_read(
    world: World, operators: Operators, hostile: Hostile
) -> None:
    await hostile.create("deep", DEEP)
    await hostile.create("large", LARGE)
    await hostile.create("many", MANY)
    await world.apply("before")
    operator = await operators.start()
    for name, words in (("deep", TOO_DEEP), ("large", TOO_LARGE), ("many", TOO_MANY)):
        await hostile.says(name, words)
    await until(lambda: world.complete("before"), "the children of the resource that was there before")
    await serves(world, "after")
    assert operator.running
    assert await operator.healthy()


async def test_what_comes_by_a_watch_harms_no_other_and_is_mended_by_an_edit(
    world: World, operators: Operators, hostile: Hostile
) -> None:
    operator = await operators.start()
    await serves(world, "llama")
    for spec, words in ((DEEP, TOO_DEEP), (LARGE, TOO_LARGE), (MANY, TOO_MANY)):
        await hostile.replace("llama", spec)
        await hostile.says("llama", words)
        assert await world.children("llama"), "children are left alone"
        await hostile.replace("llama", VALID)
        await until(lambda: valid(world), "the spec is valid again")
    await hostile.create("deep", DEEP)
    await hostile.says("deep", TOO_DEEP)
    await serves(world, "other")
    await rests(operator)


async def valid(world: World) -> bool:
    condition = await world.condition("Progressing")
    return bool(condition) and condition["reason"] != "InvalidSpec"


async def rests(operator: OperatorProcess) -> None:
    """No storm of retries: between two looks, nothing is reconciled."""
    name, looks = "pdinference_reconcile_total", [-1.0]

    async def quiet() -> bool:
        looks.append(await operator.metric(name))
        await asyncio.sleep(2)
        return looks[-1] == await operator.metric(name)

    await until(quiet, "the operator rests")


async def test_the_webhook_refuses_it_and_lets_a_stored_one_be_mended(
    world: World, webhook: Webhook, operators: Operators, hostile: Hostile
) -> None:
    await webhook.remove()
    await hostile.create("large", LARGE)
    await hostile.create("deep", DEEP)
    await webhook.configure()
    await operators.start(*webhook.flags)
    await webhook.insists()
    for name, spec, words in (("l", LARGE, TOO_LARGE), ("d", DEEP, "nested deeper"), ("m", MANY, TOO_MANY)):
        with pytest.raises(Exception, match=words):
            await hostile.create(name, spec)
    label = ("label", "pdinference", "large", "-n", world.namespace, "team=a")
    await hostile._kubectl(*label)
    await hostile.replace("large", VALID)
    await until(lambda: world.complete("large"), "the children of the one that was mended")
    await hostile._kubectl("delete", "pdinference", "deep", "-n", world.namespace)
    assert json.dumps(await world.get(RESOURCE, "deep")) == "null"
