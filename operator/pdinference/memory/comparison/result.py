"""Result of the comparison of P and D with ordinary vLLM servers on the same GPUs.

Tests: tests/memory/comparison/test_unsplit.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pdinference.api.names import Role
from pdinference.memory import instance
from pdinference.memory.advice import fits
from pdinference.memory.figures import Figure, derived
from pdinference.memory.gpus import gpu_memory
from pdinference.memory.plan import RolePlan


@dataclass(frozen=True, slots=True)
class Holding:
    """Total capacity of some GPUs.

    Attributes:
        gpus: How many there are, those left over included.
        weights: Bytes of weights on all of them.
        tokens: KV tokens that requests can have while they decode.
        concurrency: Requests of the longest length at once.
    """

    gpus: int
    weights: Figure
    tokens: Figure
    concurrency: Figure

    @property
    def tokens_for_each_gpu(self) -> Figure:
        """KV tokens divided by the number of GPUs."""
        return derived(lambda held: held / self.gpus, f"KV tokens / {self.gpus} GPUs.", self.tokens)

    def as_json(self) -> dict[str, object]:
        """Every number as `{value, source, note}`, sizes in bytes."""
        return {
            "weightsBytes": self.weights.as_json(),
            "kvCapacityTokens": self.tokens.as_json(),
            "maxConcurrency": self.concurrency.as_json(),
            "kvTokensPerGpu": self.tokens_for_each_gpu.as_json(),
        }


@dataclass(frozen=True, slots=True)
class Servers:
    """Ordinary servers, all alike, on GPUs of one kind.

    Attributes:
        products: Products of the GPUs; empty where none is named.
        gpus: GPUs that there are.
        count: Servers that they make.
        plan: One GPU of a server.
    """

    products: tuple[str, ...]
    gpus: int
    count: int
    plan: RolePlan

    @property
    def product(self) -> str | None:
        """The smallest product, which the plan is for; None where none is named."""
        return min(self.products, key=lambda name: gpu_memory(name).value or 0, default=None)

    @property
    def idle(self) -> int:
        """GPUs left over."""
        return self.gpus - self.count * instance.devices(self.plan)

    @property
    def holding(self) -> Holding:
        """Their total capacity."""
        each = self.plan
        parts = (instance.weights(each), instance.tokens(each), instance.concurrency(each))
        return Holding(self.gpus, *(times(self.count, part) for part in parts))

    def as_json(self) -> dict[str, object]:
        """How they are arranged, and the plan of one device."""
        settings = self.plan.settings
        return {
            "products": list(self.products),
            "servers": self.count,
            "tensor": settings.tensor,
            "data": settings.data,
            "idleGpus": self.idle,
            "fits": fits(self.plan),
            "device": self.plan.as_json(),
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """Some instances of P and D, and the same GPUs unsplit.

    Attributes:
        instances: How many of each role.
        split: Their total capacity, with the KV tokens of D.
        servers: Ordinary servers in place of them, for each kind of GPU.
    """

    instances: Mapping[Role, int]
    split: Holding
    servers: tuple[Servers, ...]

    @property
    def unsplit(self) -> Holding:
        """Total capacity of the ordinary servers."""
        held = [each.holding for each in self.servers]
        return Holding(
            self.split.gpus,
            total(each.weights for each in held),
            total(each.tokens for each in held),
            total(each.concurrency for each in held),
        )

    def as_json(self) -> dict[str, object]:
        """Both sides; every number as `{value, source, note}`."""
        return {
            "instances": {role.value: count for role, count in self.instances.items()},
            "gpus": self.split.gpus,
            "split": self.split.as_json(),
            "unsplit": {**self.unsplit.as_json(), "arrangement": [each.as_json() for each in self.servers]},
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer for a resource.

    Attributes:
        compared: One P and one D instance, then the counts of the spec; empty without GPUs.
        notes: Sentences about the extent of the comparison.
    """

    compared: tuple[Compared, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Every number as `{value, source, note}`."""
        return {"notes": list(self.notes), "compared": [each.as_json() for each in self.compared]}


def times(count: int, each: Figure) -> Figure:
    """A number for several equal instances."""
    return each if count == 1 else derived(lambda value: round(count * value, 2), f"{count} x: {each.note}", each)


def total(parts: Iterable[Figure]) -> Figure:
    """The sum of numbers."""
    figures = list(parts)
    if len(figures) == 1:
        return figures[0]
    return derived(lambda *values: round(sum(values), 2), " + ".join(each.note for each in figures), *figures)
