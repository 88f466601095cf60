"""`spec.router.route` with the Gateway API's own definition, which comes and goes while the operator runs."""

import os
import re
import textwrap
from collections.abc import Iterator
from typing import Final

import pytest
import yaml

from e2e.cluster import Cluster
from pdinference.api.validation import validated
from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import HTTP_ROUTE, RESOURCE
from pdinference.manifests import RenderSettings, render
from tests.api.routes import RIGHT_ROUTES, routed
from tests.conftest import REPOSITORY
from tests.integration.calm import QUIET_S, calm
from tests.integration.gateway import (
    ACCEPTED,
    install_gateway_api,
    install_gateways_and_pools,
    judge,
    uninstall_gateway_api,
)
from tests.integration.oldest import LISTS_SOON
from tests.integration.operator_process import RECONCILED
from tests.integration.operators import Operators
from tests.integration.world import World
from tests.waiting import until

_PLURALS: Final = {"Gateway": "gateways", "HTTPRoute": "httproutes", "InferencePool": "inferencepools"}


def manifests_of_the_page() -> Iterator[Json]:
    """The whole manifests that docs/gateways.md shows."""
    page = (REPOSITORY / "docs" / "gateways.md").read_text(encoding="utf-8")
    for block in re.findall(r"(?:^    .*\n|^\n)+", page, re.MULTILINE):
        if "apiVersion:" in block:
            yield from yaml.safe_load_all(textwrap.dedent(block))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster without the Gateway API, unless a test installs it."""
    name = f"{os.environ.get('PDINFERENCE_CLUSTER', 'integration')}-route"
    with Cluster.fresh(name, nodes=0) as cluster:
        yield cluster


async def route(world: World) -> Json:
    """The HTTPRoute, once it follows from the current spec."""
    await world.settled()

    async def there() -> bool:
        return await world.get(HTTP_ROUTE, "llama") is not None

    await until(there, "the HTTPRoute is there")
    return await world.api.get(HTTP_ROUTE.path(world.namespace, "llama"))


async def until_matched(world: World, *counts: int) -> None:
    """Wait until the rules of the HTTPRoute have these counts of matches."""

    async def so() -> bool:
        return [len(rule["matches"]) for rule in (await route(world))["spec"]["rules"]] == [*counts]

    await until(so, f"the rules have {counts} matches")


async def without_definition(world: World) -> None:
    with pytest.raises(ApiError):
        await world.api.get(HTTP_ROUTE.path(world.namespace))


async def test_the_gateway_api_is_missed_only_by_a_route_and_found_when_it_is_installed(
    world: World, operators: Operators
) -> None:
    await without_definition(world)
    operator = await operators.start(*LISTS_SOON)
    await world.apply()
    await world.serving()
    await world.says("Progressing", "RolloutComplete")
    assert await world.condition("RouteAccepted") == {}

    await world.apply(**routed())
    await world.says("RouteAccepted", "False", "NotServed", "gateway.networking.k8s.io/v1", "Install its CRDs")
    await world.says("Progressing", "NotServed", "spec.router.route")
    assert (await world.condition("Ready"))["status"] == "True"

    await install_gateway_api(world)
    await world.says("RouteAccepted", "Unknown", "Pending", "Gateway infra/public")
    await world.says("Progressing", "RolloutComplete")
    assert (await route(world))["spec"]["parentRefs"][0]["name"] == "public"
    # The watch has begun, too, not only the writes.
    await judge(world, **ACCEPTED)
    await world.says("RouteAccepted", "True", "Accepted", "Gateway infra/public")

    await uninstall_gateway_api(world)
    await world.says("RouteAccepted", "False", "NotServed")
    assert await operator.healthy()
    await install_gateway_api(world)
    await world.says("RouteAccepted", "Unknown", "Pending")
    await judge(world, **ACCEPTED)
    await world.says("RouteAccepted", "True", "Accepted")
    assert await operator.healthy()
    await uninstall_gateway_api(world)


class TestWithTheGatewayApi:
    @pytest.fixture(autouse=True)
    async def installed(self, world: World) -> None:
        await install_gateway_api(world)

    async def test_each_form_of_a_route_is_accepted_as_it_is(self, world: World, operators: Operators) -> None:
        """Also where the API server completes it: a comparison with the live object then finds no difference."""
        operator = await operators.start()
        for form in RIGHT_ROUTES:
            await world.apply(**routed(**form))
            wanted = routed(**form)["router"]["route"]

            async def applied(wanted: Json = wanted) -> bool:
                spec = (await route(world))["spec"]
                headers = {
                    header["name"] for match in spec["rules"][0]["matches"] for header in match.get("headers", ())
                }
                return bool(
                    [parent["name"] for parent in spec["parentRefs"]] == [p["name"] for p in wanted["parentRefs"]]
                    and spec.get("hostnames", []) == wanted.get("hostnames", [])
                    and spec["rules"][0].get("timeouts", {}) == wanted.get("timeouts", {})
                    and headers == {wanted.get("modelHeader")} - {None}
                )

            await until(applied, f"the HTTPRoute has {form}")
            await world.says("RouteAccepted", "Unknown", "Pending")
        adapters = [{"name": f"a{number}", "path": f"/adapters/{number}"} for number in range(64)]
        model = {"source": {"path": "/models/tiny"}, "lora": {"adapters": adapters}}
        await world.apply(**routed(modelHeader="X-Gateway-Model-Name"), model=model)
        await until_matched(world, 64, 1)
        await world.apply(**routed(**RIGHT_ROUTES[-1]))
        await until_matched(world, 1)
        (rule,) = (await route(world))["spec"]["rules"]
        assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
        (backend,) = rule["backendRefs"]
        assert (backend["kind"], backend["name"], backend["port"]) == ("Service", "llama", 80)
        await calm(world, QUIET_S)
        mark, before = world.audit_mark(), await operator.metric(RECONCILED)
        touched = {"metadata": {"annotations": {"touched": "yes"}}}
        await world.api.merge(HTTP_ROUTE.path(world.namespace, "llama"), touched)
        await operator.until_looked(before)
        await calm(world, QUIET_S)
        assert world.writes(mark) == {}

    async def test_what_the_controller_says_is_the_condition(self, world: World, operators: Operators) -> None:
        await operators.start()
        await world.apply(**routed())
        await route(world)
        await world.says("RouteAccepted", "Unknown", "Pending", "kubectl get -n infra gateway public")
        refused = ("False", "NotAllowedByListeners", "No listener allows routes from this namespace.")
        await judge(world, **{**ACCEPTED, "Accepted": refused})
        await world.says("RouteAccepted", "False", "NotAllowedByListeners", "Gateway infra/public: No listener allows")
        unresolved = ("False", "BackendNotFound", "Service llama not found")
        await judge(world, **{**ACCEPTED, "ResolvedRefs": unresolved})
        await world.says("RouteAccepted", "False", "BackendNotFound", "Service llama not found")
        await judge(world, **ACCEPTED)
        await world.says("RouteAccepted", "True", "Accepted")
        # The controller has not seen the edit, so its verdict no longer counts.
        await world.apply(**routed(hostnames=["llm.example.com"]))
        await world.says("RouteAccepted", "Unknown", "Pending")
        await judge(world, **ACCEPTED)
        await world.says("RouteAccepted", "True", "Accepted")
        assert (await world.status())["observedGeneration"] == (await world.get(RESOURCE, "llama") or {})["metadata"][
            "generation"
        ]

    async def test_what_somebody_edits_or_deletes_is_put_right(self, world: World, operators: Operators) -> None:
        await operators.start()
        await world.apply(**routed(hostnames=["llm.example.com"]))
        await route(world)
        path = HTTP_ROUTE.path(world.namespace, "llama")
        await world.api.merge(path, {"spec": {"hostnames": ["evil.example.com"]}})

        async def right() -> bool:
            found = await world.get(HTTP_ROUTE, "llama") or {}
            return bool(found and found["spec"]["hostnames"] == ["llm.example.com"])

        await until(right, "the host name is right again")
        await world.delete(HTTP_ROUTE, "llama")
        await until(right, "the HTTPRoute is back")

    async def test_a_removed_route_is_deleted_and_its_condition_with_it(
        self, world: World, operators: Operators
    ) -> None:
        await operators.start()
        await world.apply(**routed())
        await route(world)
        await world.says("RouteAccepted", "Pending")
        await world.apply()

        async def gone() -> bool:
            return await world.get(HTTP_ROUTE, "llama") is None and await world.condition("RouteAccepted") == {}

        await until(gone, "the HTTPRoute and the condition are gone")

    async def test_a_route_of_somebody_else_is_left_alone(self, world: World, operators: Operators) -> None:
        """People may have written one of this name for a Service that they could reach before."""
        created = await world.api.create(
            HTTP_ROUTE.path(world.namespace),
            {
                "apiVersion": HTTP_ROUTE.api_version,
                "kind": HTTP_ROUTE.name,
                "metadata": {"name": "llama"},
                "spec": {"parentRefs": [{"name": "other"}]},
            },
        )
        await operators.start()
        await world.apply(**routed())
        await world.says("RouteAccepted", "False", "NameConflict", "kubectl delete")
        assert await world.get(HTTP_ROUTE, "llama") == created
        await world.delete(HTTP_ROUTE, "llama")
        await world.says("RouteAccepted", "Unknown", "Pending")

    async def test_the_manifests_of_the_page_fit_the_definitions_and_the_router(self, world: World) -> None:
        await install_gateways_and_pools(world)
        manifests = {(one["kind"], one["metadata"]["name"]): one for one in manifests_of_the_page()}
        assert manifests.keys() == {
            ("Gateway", "public"),
            ("HTTPRoute", "models"),
            ("InferencePool", "llama"),
            ("HTTPRoute", "llama-pool"),
        }
        for (kind, name), manifest in manifests.items():
            path = f"/apis/{manifest['apiVersion']}/namespaces/{world.namespace}/{_PLURALS[kind]}/{name}"
            manifest["metadata"]["namespace"] = world.namespace
            await world.api.apply(path, manifest, manager="test")
        children = {
            (child["kind"], child["metadata"]["name"]): child["spec"]
            for child in render(validated(world.resource()), RenderSettings()).objects
            if "spec" in child
        }
        pool, pods = manifests["InferencePool", "llama"]["spec"], children["Deployment", "llama-router"]["template"]
        assert pool["selector"]["matchLabels"].items() <= pods["metadata"]["labels"].items()
        (service,) = children["Service", "llama"]["ports"]
        ports = {port["name"]: port["containerPort"] for port in pods["spec"]["containers"][0]["ports"]}
        assert pool["targetPorts"] == [{"number": ports[service["targetPort"]]}]
        (backend,) = manifests["HTTPRoute", "models"]["spec"]["rules"][0]["backendRefs"]
        assert backend == {"name": "llama", "port": service["port"]}
