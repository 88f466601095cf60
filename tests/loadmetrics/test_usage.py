"""How much of P and D was in use, from the readings of their pods."""

import pytest

from pdinference.api.names import Role
from pdinference.cluster.kinds import Owner
from pdinference.loadmetrics.usage import UsageMeter
from tests.loadmetrics.readings import lengths, told, window

OWNER = Owner("ns", "llama")
P, D = Role.PARAMETER, Role.DECODE


class Meter(UsageMeter):
    """A meter whose pods work evenly."""

    def __init__(self) -> None:
        self.now = 3000.0
        super().__init__(lambda: self.now)

    def work(self, seconds: int, *, busy: float = 0.5, kv: float = 0.4, tokens: float = 100.0) -> None:
        """One P and one D pod of a GPU each; a reading every 30 s."""
        for _ in range(seconds // 30):
            before, self.now = self.now, self.now + 30
            prefill = [told(prefill=lengths(total, total), prompt_tokens=60 * total) for total in (0, 30 * busy)]
            decode = [
                told(
                    kv_usage=kv, prompt_tokens=number * 9 * 30, generation_tokens=30 * number, inter_token=lengths(0, 0)
                )
                for number in (0, tokens)
            ]
            for role, pair in ((P, prefill), (D, decode)):
                self.note(OWNER, role, window(*zip((before, self.now), pair, strict=True)), gpus=1, idle=None)
            self.hold(OWNER, {P: 1, D: 1})


def test_the_use_is_that_of_the_last_minutes() -> None:
    meter = Meter()
    assert meter.use(OWNER, P) is None
    meter.work(900, busy=0.1)
    meter.work(900, busy=0.5)
    prefill, decode = meter.use(OWNER, P), meter.use(OWNER, D)
    assert prefill is not None
    assert decode is not None
    assert [prefill.busy, prefill.tokens_per_gpu] == pytest.approx([0.5, 30])
    assert [decode.busy, decode.kv_usage, decode.tokens_per_gpu] == pytest.approx([0.4, 0.4, 100])
    meter.now += 3600
    assert meter.use(OWNER, P) is None


def test_the_cost_is_that_of_the_gpus_held_over_the_tokens_of_the_last_hour() -> None:
    meter = Meter()
    meter.work(3600)
    # 1,000 tokens a second for two GPUs at 3.6 an hour each.
    assert meter.cost_per_million(OWNER, {P: 3.6, D: 3.6}) == pytest.approx(2.0, rel=0.02)
    assert meter.cost_per_million(OWNER, {P: 3.6, D: None}) is None
    meter.now += 2 * 3600
    assert meter.cost_per_million(OWNER, {P: 3.6, D: 3.6}) is None


def test_idle_gpus_cost_too_and_a_gap_is_not_filled() -> None:
    meter = Meter()
    meter.work(600)
    cost = meter.cost_per_million(OWNER, {P: 3.6, D: 3.6})
    meter.now += 1000  # the operator did not look
    meter.hold(OWNER, {P: 1, D: 1})
    assert meter.cost_per_million(OWNER, {P: 3.6, D: 3.6}) == pytest.approx(cost)
    meter.now += 100
    meter.hold(OWNER, {P: 1, D: 1})
    later = meter.cost_per_million(OWNER, {P: 3.6, D: 3.6})
    assert cost is not None
    assert later is not None
    assert later > cost


def test_resources_that_are_gone_take_no_memory() -> None:
    meter = Meter()
    meter.work(7200)
    assert max(len(slots) for slots in meter._slots.values()) == 13
    meter.keep(set())
    assert (meter._slots, meter._held_at) == ({}, {})
