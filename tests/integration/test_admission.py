"""The webhook on a real API server: fails closed, and renews its certificate."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from pdinference.api.crd import definitions
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import BATCH, RESOURCE
from pdinference.serving.authority import KeyMaterial, Lifetimes, renewed
from tests.integration.calm import QUIET_S, calm
from tests.integration.front import in_front
from tests.integration.operators import Operators
from tests.integration.proxy import Proxy
from tests.integration.webhook import Webhook
from tests.integration.world import World
from tests.memory.configs import LLAMA_8B
from tests.ports import free_port
from tests.waiting import until

LARGE = {"model": {"source": {"path": "/models/tiny"}, "architecture": {"config": LLAMA_8B}}}
L4 = {"accelerator": {"products": ["NVIDIA-L4"]}}


async def test_a_batch_that_cannot_work_is_refused_in_the_same_words(
    world: World, webhook: Webhook, operators: Operators, batch_document: Callable[..., dict[str, Any]]
) -> None:
    def batch(name: str, **spec: Any) -> dict[str, Any]:
        return {**batch_document(**spec), "metadata": {"name": name, "namespace": world.namespace}}

    path, resources = BATCH.path(world.namespace), {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    problem = "spec.resources.requests.cpu: 2 exceeds the limit of 1. Lower the request, or raise the limit."
    await world.api.create(path, batch("early", resources=resources))
    await operators.start(*webhook.flags)
    await webhook.insists()
    with pytest.raises(ApiError) as refusal:
        await world.api.create(path, batch("late", resources=resources))
    assert f"PDBatch late is not valid.\n  {problem}" in refusal.value.message
    await world.api.create(path, batch("right"))  # of a PDInference that may come later

    async def reported() -> bool:
        found = ((await world.get(BATCH, "early")) or {}).get("status", {}).get("conditions", ())
        return any(c["reason"] == "InvalidSpec" and problem in c["message"] for c in found)

    await until(reported, "the condition of the one that was stored before")


async def test_a_model_that_does_not_fit_is_not_applied_and_reported(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply("fits", **LARGE | {"memoryPolicy": "Warn"}, parameter=L4, decode=L4)
    await until(lambda: has_memory(world, "fits", "False"), "the verdict")
    assert (await world.status("fits"))["plan"]["decode"]["kvBytesPerToken"] == 131072
    assert (await world.condition("Progressing", "fits"))["reason"] != "InvalidSpec"
    assert await world.children("fits")
    await world.apply("not", **LARGE, parameter=L4, decode=L4)
    assert "does not fit" in await world.refusal_of("not")
    assert await has_memory(world, "not", "False")
    assert await world.children("not") == {}


async def test_an_operator_older_than_the_crds_ignores_a_field_with_a_default(
    world: World, webhook: Webhook, operators: Operators, batch_document: Callable[..., dict[str, Any]]
) -> None:
    old = await operators.start(*webhook.flags)
    await webhook.insists()
    await world.apply("llama", decode={"autoscaling": {"maxReplicas": 2}})

    async def rolled_out() -> bool:
        return bool(await world.condition("Progressing")) and bool(await world.children())

    await until(rolled_out, "its children are there")
    before = generations(await world.children())
    try:
        for crd in definitions().values():
            await world.install_crd(newer(crd))

        async def defaulted() -> bool:
            found = await world.get(RESOURCE, "llama")
            return found is not None and found["spec"].get("fromTheFuture") == "calm"

        await until(defaulted, "the stored resource has the new field")
        old.kill()
        await operators.start(*webhook.flags)
        await webhook.insists()
        await world.apply("llama", decode={"autoscaling": {"maxReplicas": 3}})
        batch = {**batch_document(), "metadata": {"name": "nightly", "namespace": world.namespace}}
        created = await world.api.create(BATCH.path(world.namespace), batch)
        assert created["spec"]["fromTheFuture"] == "calm"

        async def seen() -> bool:
            generation = (await world.api.get(RESOURCE.path(world.namespace, "llama")))["metadata"]["generation"]
            return (await world.status()).get("observedGeneration") == generation and bool(
                (await world.api.get(BATCH.path(world.namespace, "nightly"))).get("status", {}).get("conditions")
            )

        await until(seen, "the restarted operator has reconciled the edit and the batch")
        assert (await world.condition("Progressing"))["reason"] != "InvalidSpec"
        conditions = (await world.api.get(BATCH.path(world.namespace, "nightly")))["status"]["conditions"]
        assert "InvalidSpec" not in {condition["reason"] for condition in conditions}
        after = generations(await world.children())
        workloads = [key for key in before if key[0] in {"StatefulSet", "Deployment"}]
        assert workloads
        assert {key: after[key] for key in workloads} == {key: before[key] for key in workloads}
        await calm(world, QUIET_S, counted=world.writes)  # it reads the Secret of its certificate all the time
    finally:
        for crd in definitions().values():
            await world.install_crd(crd)


def newer(crd: dict[str, Any]) -> dict[str, Any]:
    """The CRD of a later release, which has one more field in the spec, with a default."""
    found: dict[str, Any] = deepcopy(crd)
    spec = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["fromTheFuture"] = {"type": "string", "maxLength": 9, "default": "calm"}
    return found


def generations(children: dict[tuple[str, str], Any]) -> dict[tuple[str, str], int]:
    return {key: child["metadata"].get("generation", 0) for key, child in children.items()}


async def has_memory(world: World, name: str, status: str) -> bool:
    return (await world.condition("MemoryFits", name)).get("status") == status


async def test_with_the_webhook_down_nothing_gets_in_and_all_else_goes_on(
    world: World, webhook: Webhook, operators: Operators
) -> None:
    operator = await operators.start(*webhook.flags)
    await webhook.insists()
    await world.apply("llama")
    operator.kill()
    with pytest.raises(ApiError) as refusal:
        await world.apply("other")
    assert "validate.pdinference.io" in refusal.value.message
    with pytest.raises(ApiError):
        await world.apply("llama", decode={"seed": 1})

    path = RESOURCE.path(world.namespace, "llama")
    await world.api.merge(path, {"metadata": {"labels": {"team": "a"}, "finalizers": ["example.com/x"]}})
    await world.api.merge(f"{path}/status", {"status": {"url": "http://x"}})
    await world.api.merge(f"{path}/scale", {"spec": {"replicas": 3}})
    with pytest.raises(ApiError, match="1000"):
        await world.api.merge(f"{path}/scale", {"spec": {"replicas": 100000}})
    await world.delete(RESOURCE, "llama")
    await world.api.merge(path, {"metadata": {"finalizers": None}})

    async def gone() -> bool:
        return await world.get(RESOURCE, "llama") is None

    await until(gone, "the resource is deleted")
    await operators.start(*webhook.flags)

    async def accepted() -> bool:
        try:
            await world.apply("other")
        except ApiError:
            return False
        return True

    await until(accepted, "a restart is all it takes")


async def test_only_the_api_server_is_answered_where_it_presents_its_certificate(
    world: World, webhook: Webhook, operators: Operators
) -> None:
    """The API server of the tests calls webhooks with its front proxy's certificate, as docs/webhook.md has it."""
    await operators.start(*webhook.flags, "--webhook-client-certificate")
    await webhook.insists()
    await world.apply("llama")
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}}
    url = f"https://{webhook.host}:{webhook.port}/validate"
    async with aiohttp.ClientSession() as session, session.post(url, json=review, ssl=False) as response:
        refusal = await response.json()
    assert (response.status, refusal["reason"]) == (403, "Forbidden")
    assert "webhook.clientCertificate" in refusal["message"]


async def test_an_api_server_with_the_wrong_certificate_gets_nothing_in(
    world: World, webhook: Webhook, operators: Operators
) -> None:
    await operators.start(*webhook.flags, "--webhook-client-certificate", "--webhook-client-name=somebody-else")

    async def asks() -> bool:
        try:
            await world.apply("llama")
        except ApiError as error:
            return "validate.pdinference.io" in error.message and "client certificate" in error.message
        return False

    await until(asks, "the API server passes the webhook's refusal on")


async def test_an_expired_certificate_is_never_served(world: World, operators: Operators) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=2)
    expired = renewed(
        None, (world.cluster.host_address,), long_ago, Lifetimes(server=timedelta(days=1)), published=False
    )
    webhook = Webhook(world)
    await webhook.install(expired.as_secret())
    async with Proxy(webhook.host, webhook.port, listen=webhook.host) as proxy:
        await webhook.lead_to(proxy.port)
        try:
            await operators.start(*webhook.flags)
            await webhook.insists()
            first = await webhook.material()
            assert first is not None
            assert first.authorities == expired.authorities, "clients that know the CA need no new one"
            seen = await webhook.certificates_seen(proxy, since=webhook.overwrite(expired))
            assert [certificate.serial_number for certificate in seen] == [
                first.certificate.serial_number,
                (await webhook.served()).serial_number,
            ]
            assert expired.certificate not in seen
        finally:
            await webhook.remove()


async def test_while_a_certificate_is_expired_new_connections_fail_closed(
    world: World, webhook: Webhook, operators: Operators, tmp_path: Path
) -> None:
    """The operator may not write the Secret, until the certificate has expired while it serves."""
    forbidden = True

    async def keep_from_renewing(request: web.Request) -> None:
        if forbidden and request.method == "PUT" and request.path == webhook.secret_path:
            raise web.HTTPForbidden

    async with (
        in_front(world.cluster.kubeconfig, tmp_path, keep_from_renewing) as kubeconfig,
        Proxy(webhook.host, webhook.port, listen=webhook.host) as proxy,
    ):
        material = reissued(None, webhook.host, timedelta(days=90))
        await webhook.overwrite(material)
        await webhook.lead_to(proxy.port)
        await operators.start(*webhook.flags, kubeconfig=kubeconfig)
        await webhook.insists()
        due = reissued(material, webhook.host, timedelta(seconds=20))
        await webhook.overwrite(due)
        await until(lambda: webhook.serves(due.certificate), "what is due is served as long as it is valid")
        await proxy.renew()
        await world.apply("llama")

        async def expired() -> bool:
            return datetime.now(UTC) > due.certificate.not_valid_after_utc + timedelta(seconds=1)

        await until(expired, "the certificate has expired")
        await world.apply("llama", decode={"seed": 1})  # over the connection that the API server has
        await proxy.renew()
        refusal = await webhook.refused("llama", decode={"seed": 2})
        assert "failed calling webhook" in refusal
        assert "certificate has expired" in refusal
        await world.api.merge(RESOURCE.path(world.namespace, "llama"), {"metadata": {"labels": {"team": "a"}}})

        forbidden = False

        async def accepted() -> bool:
            with suppress(ApiError):
                await world.apply("llama", decode={"seed": 2})
                return True
            return False

        await until(accepted, "the renewed certificate is served")
        now = await webhook.material()
        assert now is not None
        assert now.authorities == due.authorities
        assert await webhook.serves(now.certificate)


def reissued(material: KeyMaterial | None, host: str, life: timedelta) -> KeyMaterial:
    """Another certificate of the same authority, valid for so long from now on."""
    now, lifetimes = datetime.now(UTC), Lifetimes(server=life)
    elsewhere = renewed(material, ("another.host",), now, lifetimes, published=True)  # of no use to the host
    return renewed(elsewhere, (host,), now, lifetimes, published=True)


async def test_the_authority_is_rotated_without_a_failed_call(
    world: World, webhook: Webhook, operators: Operators
) -> None:
    async with Proxy(webhook.host, webhook.port, listen=webhook.host) as proxy:
        await webhook.lead_to(proxy.port)
        await operators.start(*webhook.flags)
        await webhook.insists()
        old = await webhook.material()
        assert old is not None
        # A new authority half a minute old, so that this test need not wait the whole minute until it may sign.
        recent = renewed(None, (webhook.host,), datetime.now(UTC) - timedelta(seconds=35), Lifetimes(), published=False)
        authorities = (*recent.authorities, *old.authorities)
        joined = KeyMaterial(authorities, recent.authority_key, old.certificate, old.key)
        seen = await webhook.certificates_seen(proxy, since=webhook.overwrite(joined))
        new = await webhook.material()
        assert new is not None
        assert seen == [old.certificate, new.certificate]
        assert await webhook.holds(new)
        newest = recent.authorities[0]
        new.certificate.verify_directly_issued_by(newest)
        age = new.certificate.not_valid_before_utc - newest.not_valid_before_utc
        assert age >= Lifetimes().settling, "it signed before clients had time to hear of it"


async def keep_applying(world: World) -> None:
    for seed in range(100_000):
        await world.apply("llama", decode={"seed": seed})


async def test_the_webhook_answers_correctly_during_an_upgrade_under_load(
    world: World, webhook: Webhook, operators: Operators
) -> None:
    """Like a rolling update: the next replica is ready, then the last one gets SIGTERM."""
    first = await operators.start(*webhook.flags)
    await webhook.insists()
    calls = asyncio.create_task(keep_applying(world))
    wrong = asyncio.create_task(keep_trying_what_is_wrong(webhook))
    second_port = free_port()
    second = await operators.start(*webhook.flags, f"--tls-port={second_port}")
    await webhook.lead_to(second_port)
    stopping = asyncio.create_task(asyncio.to_thread(first.stop))
    assert await stopping == 0
    await asyncio.sleep(1)
    for task in (calls, wrong):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert second.running


async def keep_trying_what_is_wrong(webhook: Webhook) -> None:
    while True:
        message = await webhook.refused("wrong", engine={"args": {"nonsense": 1}})
        assert "no such option" in message, message
