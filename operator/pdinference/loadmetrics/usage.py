"""How much of P and D was in use, from the readings of their pods: a sum for each five minutes of the last hour."""

import time
from array import array
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final

from pdinference.api.names import Role
from pdinference.cluster.kinds import Owner
from pdinference.loadmetrics.scraping.exposition import Reading
from pdinference.loadmetrics.scraping.window import Window, decode_window, prefill_window
from pdinference.planning.utilization import RoleUse

_SLOT_S: Final = 300.0
_SLOTS: Final = 13
"""Slots of an hour, and the one that has begun."""
_RECENT: Final = 2
"""Latest slots over which utilization is reported: 5 to 10 minutes."""
_LONGEST_S: Final = 120.0
"""Longer gaps between two rounds are not filled."""

_POD_S, _BUSY_S, _KV_S, _TOKENS, _INSTANCE_GPU_S, _ALL_TOKENS, _GPU_S = range(7)
"""Sums of a slot: seconds that pods were measured for, busy seconds among them, seconds times the share of the KV cache
in use, tokens of the role, seconds times GPUs of these pods, tokens of prompts and answers (of D), and seconds times
GPUs of all pods."""
_SUMS: Final = 7


class UsageMeter:
    """The sums of each role of each resource.

    Args:
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slots: dict[tuple[Owner, Role], deque[tuple[int, array[float]]]] = {}
        self._held_at: dict[tuple[Owner, Role], float] = {}

    def note(self, owner: Owner, role: Role, window: Window, *, gpus: int, idle: float | None) -> None:
        """Add the latest reading of a pod.

        Args:
            owner: The resource.
            role: Role of the pod.
            window: The readings of the pod.
            gpus: GPUs of its instance.
            idle: Time per output token of an idle D pod, in seconds; None if unknown.
        """
        now = self._clock()
        if (step := window.step) is None or (busy := _busy(role, window, now, idle)) is None:
            return
        before, last = step
        seconds = last.at - before.at
        prompts = _grown(before.reading, last.reading, lambda reading: reading.prompt_tokens)
        answers = _grown(before.reading, last.reading, lambda reading: reading.generation_tokens)
        sums = self._slot(owner, role, now)
        sums[_POD_S] += seconds
        sums[_BUSY_S] += seconds * min(1.0, max(0.0, busy))
        sums[_KV_S] += seconds * min(1.0, last.reading.kv_usage or 0.0)
        sums[_TOKENS] += prompts if role is Role.PARAMETER else answers
        sums[_INSTANCE_GPU_S] += seconds * gpus
        if role is Role.DECODE:  # each request reaches D
            sums[_ALL_TOKENS] += prompts + answers

    def hold(self, owner: Owner, gpus: Mapping[Role, int]) -> None:
        """Note the GPUs that all pods of a resource hold now, by the role of the pod."""
        now = self._clock()
        for role, count in gpus.items():
            seconds = now - self._held_at.get((owner, role), now)
            self._held_at[owner, role] = now
            if seconds <= _LONGEST_S:
                self._slot(owner, role, now)[_GPU_S] += seconds * count

    def use(self, owner: Owner, role: Role) -> RoleUse | None:
        """Use of a role in the last minutes; None if no pod was measured."""
        sums = self._total(owner, role, _RECENT)
        if sums[_POD_S] <= 0:
            return None
        gpu_seconds = sums[_INSTANCE_GPU_S]
        return RoleUse(
            busy=sums[_BUSY_S] / sums[_POD_S],
            tokens_per_gpu=sums[_TOKENS] / gpu_seconds if gpu_seconds > 0 else None,
            kv_usage=sums[_KV_S] / sums[_POD_S],
        )

    def cost_per_million(self, owner: Owner, prices: Mapping[Role, float | None]) -> float | None:
        """Cost of a million tokens of the last hour; None without tokens, or if the price of a GPU in use is unknown.

        Args:
            owner: The resource.
            prices: Price of an hour of a GPU that pods of a role hold; None if unknown.
        """
        tokens = self._total(owner, Role.DECODE, _SLOTS)[_ALL_TOKENS]
        cost = 0.0
        for role, price in prices.items():
            hours = self._total(owner, role, _SLOTS)[_GPU_S] / 3600
            if hours > 0 and price is None:
                return None
            cost += hours * (price or 0.0)
        return 1e6 * cost / tokens if tokens >= 1 and cost > 0 else None

    def keep(self, owners: Collection[Owner]) -> None:
        """Remove all resources except these."""
        self._slots = {key: slots for key, slots in self._slots.items() if key[0] in owners}
        self._held_at = {key: at for key, at in self._held_at.items() if key[0] in owners}

    def _slot(self, owner: Owner, role: Role, now: float) -> "array[float]":
        slots = self._slots.setdefault((owner, role), deque(maxlen=_SLOTS))
        number = int(now // _SLOT_S)
        if not slots or slots[-1][0] != number:
            slots.append((number, array("d", bytes(8 * _SUMS))))
        return slots[-1][1]

    def _total(self, owner: Owner, role: Role, latest: int) -> list[float]:
        """The sums of the latest slots."""
        oldest = int(self._clock() // _SLOT_S) - latest
        slots = [sums for number, sums in self._slots.get((owner, role), ()) if number > oldest]
        return [sum(values) for values in zip(*slots, strict=True)] or [0.0] * _SUMS


def _busy(role: Role, window: Window, now: float, idle: float | None) -> float | None:
    """Share of its capacity that a pod used: as the signals for autoscaling measure it."""
    if role is Role.PARAMETER:
        prefill = prefill_window(window, now)
        if prefill is None or prefill.seconds <= 0:
            return None
        return prefill.busy_seconds(answers=False) / prefill.seconds
    decoding = decode_window(window, now)
    return None if decoding is None else decoding.load(idle)


def _grown(before: Reading, last: Reading, counter: Callable[[Reading], float | None]) -> float:
    return max(0.0, (counter(last) or 0.0) - (counter(before) or 0.0))
