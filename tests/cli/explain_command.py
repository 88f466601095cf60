"""`pdinference explain` on an API server in memory, for tests."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pdinference.cli import main
from pdinference.cli.explain import file_objects  # noqa: F401 - it has a subclass of ApiServer, which tests replace
from pdinference.cluster import client
from pdinference.cluster.kinds import CHILD_BY_NAME, POD, RESOURCE, watched
from tests.inference import scaled
from tests.inference.world import CR, World

Json = dict[str, Any]
Make = Callable[..., Json]
Write = tuple[str, str]
SERVICE = "/api/v1/namespaces/ns/services/llama"
READS = {"get", "refused"}
"""Requests that change nothing; the second is a write whose precondition does not hold."""


class Command:
    """The command on an API server in memory."""

    def __init__(self, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kubeconfig = kubeconfig
        self.monkeypatch = monkeypatch

    async def run(self, world: World, *words: str, name: str = "llama") -> str:
        """What it prints; it must not write."""
        before = json.dumps(world.api.objects, sort_keys=True)
        world.api.requests.clear()
        result = await self.result(world, *words, name=name)
        assert result.exit_code == 0, result.output
        assert set(world.api.requests) == {"get"}
        assert json.dumps(world.api.objects, sort_keys=True) == before
        return result.stdout

    async def result(self, world: World, *words: str, name: str = "llama") -> Result:
        with self.monkeypatch.context() as patch:
            patch.setattr(client, "ApiServer", lambda *_, **__: world.api)
            return await invoke(*filter(None, [name]), "-n", "ns", "--kubeconfig", str(self.kubeconfig), *words)

    async def found(self, world: World, *options: str, name: str = "llama") -> Json:
        found: Json = json.loads(await self.run(world, "-o", "json", *options, name=name))
        return found

    async def reconciled(self, world: World) -> set[Write]:
        """The writes of the next reconcile."""
        seen: set[Write] = set()
        note = world.api._note

        def noted(verb: str, path: str) -> None:
            seen.add((verb, path))
            note(verb, path)

        with self.monkeypatch.context() as patch:
            patch.setattr(world.api, "_note", noted)
            await world.reconcile()
        return {
            (verb, path)
            for verb, path in seen
            if verb not in READS and not path.startswith(CR) and "/events" not in path
        }


async def invoke(*words: str, text: str | None = None) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, ["explain", *words], input=text)


def predicted(found: Json) -> set[Write]:
    """The writes that an explanation names."""
    return {_write(step) for step in found["writes"]}


def _write(step: Json) -> Write:
    kind = CHILD_BY_NAME[step["kind"]]
    path = kind.path("ns", step["name"])
    match step["action"]:
        case "create" | "apply":
            return "apply", path
        case "record":
            return "create", kind.path("ns")
        case "report":
            return "merge", f"{path}/status"
        case action:
            return {"scale": "merge", "mark": "merge", "delete": "delete"}[action], path


async def at_rest(world: World) -> str:
    """Roll out, until nothing is left to do; the revision comes back."""
    return await scaled.serving(world)


def dump(world: World, **more: Json) -> str:
    """What `kubectl get -o yaml` prints of all objects."""
    kinds = (RESOURCE, POD, *(kind for kind in watched(keda=True) if kind is not POD))
    items = [
        {"apiVersion": kind.api_version, "kind": kind.name, **body}
        for kind in dict.fromkeys(kinds)
        for path, body in world.api.objects.items()
        if path.startswith(kind.path("ns") + "/")
    ]
    return yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [*items, *more.values()]})
