"""`pdinference explain` against a real API server: what it names is what an operator then writes."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from pdinference.cli import main
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import CHILD_BY_NAME, CONTROLLER_REVISION, DEPLOYMENT, RESOURCE
from tests.charts.helm import of_kind, rendered
from tests.integration.accounts import user
from tests.integration.operators import Operators
from tests.integration.world import READS, World
from tests.waiting import until

SCALED: Json = {"autoscaling": {"minReplicas": 2, "maxReplicas": 4}}
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
VERBS = {"create": "patch", "apply": "patch", "scale": "patch", "report": "patch", "delete": "delete"}


async def explain(world: World, *words: str) -> str:
    place = ["--kubeconfig", str(world.cluster.kubeconfig), "--namespace", world.namespace]
    result = await asyncio.to_thread(CliRunner().invoke, main, ["explain", "llama", *words, *place])
    assert result.exit_code == 0, result.output
    return result.stdout


async def found(world: World) -> Json:
    answer: Json = json.loads(await explain(world, "-o", "json"))
    return answer


def named(explained: Json) -> Counter[tuple[str, str]]:
    """The requests that write what an explanation names, without the history."""
    steps = [step for step in explained["writes"] if step["action"] != "record"]
    return Counter((VERBS[step["action"]], CHILD_BY_NAME[step["kind"]].plural) for step in steps)


async def at_rest(world: World) -> None:
    async def rests() -> bool:
        return not (await found(world))["writes"]

    await until(rests, "nothing is to do")


async def requests_of(world: World, mark: int) -> set[str]:
    """The verbs of the command's requests."""
    return {
        event["verb"]
        for event in world.audit_events(mark)
        if event.get("userAgent") == "pdinference" and event.get("objectRef", {}).get("namespace") == world.namespace
    }


async def test_at_rest_nothing_is_to_do_and_after_an_edit_it_names_the_writes(
    world: World, operators: Operators, tmp_path: Path
) -> None:
    operator = await operators.start()
    mark = world.audit_mark()
    await world.apply(decode=SCALED)
    first = await world.serving()
    await at_rest(world)
    assert "Nothing to do." in await explain(world)
    assert (await found(world))["held_back"] == []
    operator.kill()

    await world.apply(decode=SCALED, engine={"image": "vllm:2"})
    explained = await found(world)
    assert (explained["serving"], explained["handled"]) == (first, explained["generation"] - 1)
    second = explained["target"]
    reasons = {(step["action"], step["name"]): step["reason"] for step in explained["writes"]}
    assert ("create", f"llama-decode-{second}") in reasons
    assert f"{first} -> {second}" in reasons["apply", "llama-router"]
    assert await requests_of(world, mark) <= READS

    mark = world.audit_mark()
    await operators.start()
    await world.settled()
    name = f"llama-decode-{second}"

    async def created() -> bool:
        return await world.get(DEPLOYMENT, name) is not None

    await until(created, "the new revision exists")
    await at_rest(world)
    own = {CONTROLLER_REVISION.plural, "events", RESOURCE.plural}
    written = Counter({key: n for key, n in world.writes(mark).items() if key[1] not in own})
    assert named(explained) <= written, "what follows from these writes may come besides"

    await expect_the_rights_of_an_ordinary_user_are_enough(world, tmp_path)


async def expect_the_rights_of_an_ordinary_user_are_enough(world: World, folder: Path) -> None:
    """Those of the ClusterRole `edit`, to which Kubernetes adds the chart's own."""
    roles = {item["metadata"]["name"]: item for item in of_kind(rendered(release="plugin"), "ClusterRole")}
    added = {name: role for name, role in roles.items() if name.endswith(("-view", "-edit"))}
    assert len(added) == 2
    for name, role in added.items():
        await world.api.apply(f"{CLUSTER_ROLES}/{name}", role, manager="test")
    kubeconfig = await user(world, folder, {"kind": "ClusterRole", "name": "edit"})

    async def run(*words: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, main, [*words, "--kubeconfig", str(kubeconfig), *place])

    async def allowed() -> bool:
        return (await run("restart", "decode")).exit_code == 0

    place = ("--namespace", world.namespace)
    try:
        await until(allowed, "the rights are aggregated")
        status = await run("status", "llama")
        assert (status.exit_code, "You may not" in status.output) == (0, False)
        explained = await run("explain")
        # Optional kinds, which the role does not cover either, can follow.
        assert "You may not list roles, rolebindings" in explained.output
        assert (explained.exit_code, "Nothing to do." in explained.output) == (0, True)
        assert "* " in (await run("history")).output
        assert "vllm:2" in (await run("diff")).output
        for words in (("logs", "router"), ("top", "--once"), ("plan", "llama"), ("chat", "Hi")):
            assert "forbidden" not in (await run(*words)).output, words
        refused = await run("doctor", "--context", "nope")
        assert "Pass --context with one of:" in refused.output
    finally:
        for name in added:
            found = await world.api.get(f"{CLUSTER_ROLES}/{name}")
            await world.api.delete(f"{CLUSTER_ROLES}/{name}", uid=found["metadata"]["uid"])


async def test_an_unlabelled_object_in_the_place_of_a_child_is_named(world: World) -> None:
    await world.apply()
    service: dict[str, Any] = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "llama"}}
    path = CHILD_BY_NAME["Service"].path(world.namespace, "llama")
    await world.api.apply(path, {**service, "spec": {"ports": [{"port": 80}]}}, manager="somebody")
    held = {(step["kind"], step["name"]): step["reason"] for step in (await found(world))["held_back"]}
    assert "does not belong to this PDInference" in held["Service", "llama"]
