"""In every state of a resource, `pdinference explain` lists exactly the writes of the next reconcile."""

from random import Random
from typing import Any

import pytest

from pdinference.cluster.kinds import CONTROLLER_REVISION, SCALER
from tests.cli.explain_command import SERVICE, Command, Json, Make, Write, predicted
from tests.inference import scaled
from tests.inference.budgeted import BUDGET
from tests.inference.world import World

_SPECS: tuple[Json, ...] = (
    {},
    BUDGET,
    {**BUDGET, "autoscaling": {"gpuBudget": 3}},
    {"parameter": scaled.GROUPS, "decode": scaled.SCALED},
)


class Life:
    """What happens to a resource, by chance."""

    def __init__(self, document: Make, seed: int) -> None:
        self.chance = Random(seed)  # noqa: S311 - no secret
        self.spec = self.chance.choice(_SPECS)
        self.world = World(document(**self.spec))
        self.world.observe(activity=None)  # the command does not read it

    def go_on(self) -> str:
        """One event; its name comes back."""
        changes = (self.image, self.image, self.invalid, self.routers, self.strategy, self.recommend)
        others = (self.ready, self.ready, self.unready, self.no_pods, self.delete, self.change, self.foreign)
        event = self.chance.choice((*changes, *others))
        event()
        self.world.sync()
        return event.__name__

    def _edit(self, **spec: Any) -> None:
        self.spec = {**self.spec, **spec}
        self.world.edit(**self.spec)

    def image(self) -> None:
        self._edit(engine={"image": self.chance.choice(["v:1", "v:2", "v:3"])})

    def invalid(self) -> None:
        self.world.edit(**{**self.spec, "engine": {"args": {"nonsense": 1}}})

    def routers(self) -> None:
        self._edit(router={"replicas": self.chance.randrange(3)})

    def strategy(self) -> None:
        self._edit(rollout={"strategy": "Recreate"})

    def recommend(self) -> None:
        for role in ("parameter", "decode"):
            if SCALER.path("ns", f"llama-{role}") in self.world.api.objects:
                scaled.recommend(self.world, self.chance.randrange(1, 7), role)

    def ready(self) -> None:
        self.world.roll_out()

    def unready(self) -> None:
        self.world.roll_out(ready=False)

    def no_pods(self) -> None:
        for path in [path for path in self.world.api.objects if "/pods/" in path]:
            del self.world.api.objects[path]

    def delete(self) -> None:
        for path in self._children()[:1]:
            del self.world.api.objects[path]

    def change(self) -> None:
        for path in self._children()[:1]:
            body = self.world.api.objects[path]
            body["metadata"]["labels"]["app.kubernetes.io/name"] = "changed"
            self.world.api.put(path, body)

    def foreign(self) -> None:
        if SERVICE not in self.world.api.objects:
            self.world.api.put(SERVICE, {"metadata": {"name": "llama", "namespace": "ns"}})

    def _children(self) -> list[str]:
        found = [
            path
            for path, body in self.world.api.objects.items()
            if "ownerReferences" in body["metadata"]
            and "/pods/" not in path
            and f"/{CONTROLLER_REVISION.plural}/" not in path
        ]
        self.chance.shuffle(found)
        return found


def without_verb_of_history(writes: set[Write]) -> set[Write]:
    """A history entry is created, raised or deleted; the explanation does not say which."""
    return {("record", "") if f"/{CONTROLLER_REVISION.plural}" in path else (verb, path) for verb, path in writes}


@pytest.mark.parametrize("seed", range(8))
async def test_an_explanation_names_the_writes_of_the_next_reconcile(
    document: Make, command: Command, seed: int
) -> None:
    life = Life(document, seed)
    if seed % 2:
        await scaled.serving(life.world)
    events: list[str] = []
    for _ in range(8):
        events.append(life.go_on())
        named = without_verb_of_history(predicted(await command.found(life.world)))
        assert named == without_verb_of_history(await command.reconciled(life.world)), events
