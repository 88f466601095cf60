"""Canaries through a fleet whose model shows each fault of the KV transfer."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from pdinference.api.names import Verification
from pdinference.engine.connectors.registry import HANDOVERS
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.router.canary import Canary
from pdinference.router.choice import policies
from pdinference.router.dispatch import Dispatcher, Rules
from pdinference.router.record import Metrics, Telemetry
from pdinference.router.tracing import Tracer
from tests.router.engines import Fleet, fleet
from tests.router.kv_model import Half, HalfZeros, KvModel, Nothing, OthersBlocks, Transfer, Zeros

FAULTS: Mapping[Verification, tuple[type[Transfer], ...]] = {
    Verification.WRONG_ANSWER: (Zeros, OthersBlocks, HalfZeros),
    Verification.COMPUTED_BY_DECODE: (Nothing, Half),
}
FAULTY = [(fault, state) for state, faults in FAULTS.items() for fault in faults]
TOKENS = 448 + 224


class Client:
    """A request of a client."""

    began_at = 0.0
    reads_from = None
    placed = True
    place = 0
    overtaken = False
    stream = False

    def abort(self, reason: str) -> None:
        raise AssertionError(reason)


@asynccontextmanager
async def model(
    transfer: Transfer | None = None, *names: str, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[tuple[Fleet, KvModel, Canary]]:
    """A fleet, the model in its pods, and canaries to them. The clock is that of the pods."""
    async with fleet(*(names or ("p", "d")), clock=clock) as world:
        dispatcher = Dispatcher(world.pods, world.client, Rules(HANDOVERS["nixl"], policies("least_loaded")))
        yield world, KvModel(world, transfer), Canary(dispatcher, Telemetry(Metrics(), Tracer(None)), Share())
