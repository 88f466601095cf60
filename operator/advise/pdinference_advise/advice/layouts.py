"""The arrangements that are compared: which engines on which GPUs, and the way between them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product as pairs
from typing import Final

from pdinference.api.v1alpha1.transfer import MOST_INSTANCES
from pdinference.memory.product_names import short_name
from pdinference.memory.split import GPUS_OF_A_HOST
from pdinference_advise.advice.offer import Offer, OfferedPool
from pdinference_advise.advice.ways import Transport, way_of

SIZES: Final = (1, 2, 4, 8)
"""Tensor-parallel sizes that are tried."""


@dataclass(frozen=True, slots=True)
class EngineGroup:
    """Engines of a role, all alike.

    Attributes:
        product: Product of their GPUs.
        tensor: GPUs of one engine.
        number: Engines.
    """

    product: str
    tensor: int
    number: int

    @property
    def gpus(self) -> int:
        """GPUs of all of them."""
        return self.tensor * self.number


@dataclass(frozen=True)
class Layout:
    """An arrangement.

    Attributes:
        decode: D's engines; without P they compute the prompts too.
        parameter: P's engines; None for the mode Aggregated.
        transport: The way between them; None without P.
        fp8: Whether the KV cache is in FP8 although the file does not say so.
        step_tokens: Tokens a step of engines without P, although the file does not say so; 0: those of the file.
        adaptive: Whether each request goes its own way (`router.disaggregation`), although the file does not say so.
        named: Whether its title has the products, because there are several.
    """

    decode: EngineGroup
    parameter: EngineGroup | None = None
    transport: Transport | None = None
    fp8: bool = False
    step_tokens: int = 0
    adaptive: bool = False
    named: bool = False

    @property
    def split(self) -> bool:
        """Whether P computes the prompts."""
        return self.parameter is not None

    @property
    def hint(self) -> bool:
        """Whether it differs from the file in more than engines and ways. Then it is shown, and never the verdict."""
        return self.fp8 or self.adaptive or bool(self.step_tokens)

    @property
    def host_local(self) -> bool:
        """Whether P and D share pods."""
        return self.transport is not None and self.transport.host_local

    @property
    def groups(self) -> tuple[EngineGroup, ...]:
        """P, if there is one, and D."""
        return (self.decode,) if self.parameter is None else (self.parameter, self.decode)

    @cached_property
    def gpus(self) -> Mapping[str, int]:
        """GPUs by product."""
        counted: Counter[str] = Counter()
        for group in self.groups:
            counted[group.product] += group.gpus
        return counted

    @property
    def number(self) -> int:
        """GPUs in all."""
        return sum(self.gpus.values())

    @cached_property
    def pods(self) -> int:
        """Pods that P and D share with the path HostLocal: as few as hosts allow; 0 if they do not share any."""
        if self.parameter is None or not self.host_local:
            return 0
        for pods in range(1, min(self.parameter.number, self.decode.number) + 1):
            if not (self.parameter.number % pods or self.decode.number % pods):
                most = max(self.parameter.number, self.decode.number) // pods
                if self.number // pods <= GPUS_OF_A_HOST and most <= MOST_INSTANCES:
                    return pods
        return 0

    def cost(self, offer: Offer) -> float:
        """The price of an hour, or GPU-hours without prices."""
        price = {pool.product: pool.price for pool in offer.pools}
        return sum(price[product] * number for product, number in self.gpus.items())

    @property
    def title(self) -> str:
        """For people, in one line."""

        def engines(group: EngineGroup, name: str) -> str:
            on = f" on {short_name(group.product)}" if self.named else ""
            return f"{group.number} {name} TP {group.tensor}{on}"

        changed = f", {self.step_tokens:,} tokens a step" if self.step_tokens else ""
        changed += ", FP8 KV cache" if self.fp8 else ""
        changed += ", Adaptive" if self.adaptive else ""
        if self.parameter is None or self.transport is None:
            return f"unsplit: {engines(self.decode, 'x')}{changed}"
        way = way_of(self.transport, self.decode.product, self.parameter.tensor).way.name
        parts = f"{engines(self.parameter, 'P')} + {engines(self.decode, 'D')}"
        return f"split: {parts}, {way}{changed}"


def layouts(
    offer: Offer, sizes: Mapping[str, Iterable[int]], transports: Iterable[Transport], *, mla: bool = False
) -> Iterator[Layout]:
    """Every arrangement that is possible, on all GPUs of the offer or fewer.

    Args:
        offer: The GPUs.
        sizes: By product, the tensor-parallel sizes at which both roles fit.
        transports: The ways to try.
        mla: Whether D may have fewer ranks than P, because each rank holds the whole KV cache.
    """
    ways, several = tuple(transports), len(offer.pools) > 1
    for pool in offer.pools:
        for tensor in sizes[pool.product]:
            for number in range(1, pool.number // tensor + 1):
                yield Layout(EngineGroup(pool.product, tensor, number), named=several)
    for of_p, of_d in pairs(offer.pools, repeat=2):
        for tensor_p, tensor_d in pairs(sizes[of_p.product], sizes[of_d.product]):
            if tensor_d % tensor_p and not (mla and tensor_p % tensor_d == 0):
                continue
            for parameter, decode in _pairs(of_p, of_d, tensor_p, tensor_d):
                yield from _on_ways(parameter, decode, ways, named=several)


def _pairs(
    of_p: OfferedPool, of_d: OfferedPool, tensor_p: int, tensor_d: int
) -> Iterator[tuple[EngineGroup, EngineGroup]]:
    shared = of_p.product == of_d.product
    for number_p in range(1, of_p.number // tensor_p + 1):
        left = of_d.number - (number_p * tensor_p if shared else 0)
        for number_d in range(1, left // tensor_d + 1):
            yield EngineGroup(of_p.product, tensor_p, number_p), EngineGroup(of_d.product, tensor_d, number_d)


def _on_ways(
    parameter: EngineGroup, decode: EngineGroup, ways: Iterable[Transport], *, named: bool
) -> Iterator[Layout]:
    for way in ways:
        layout = Layout(decode, parameter, way, named=named)
        if way.host_local and (parameter.product != decode.product or not layout.pods):
            continue
        yield layout
