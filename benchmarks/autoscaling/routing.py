"""How the router chooses among the pods that are ready: in turns, or by its own count of what they have."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Protocol

from benchmarks.autoscaling.pods import DecodePod, PrefillPod


class Routing(Protocol):
    """Chooses the two pods of a request."""

    def prefill(self, pods: Sequence[PrefillPod]) -> PrefillPod:
        """Where the prompt is worked off."""

    def decode(self, pods: Sequence[DecodePod]) -> DecodePod:
        """Where the answer is made."""


class Turns:
    """vllm-router's `round_robin`."""

    def __init__(self) -> None:
        self._prefill, self._decode = count(), count()

    def prefill(self, pods: Sequence[PrefillPod]) -> PrefillPod:
        """The next in turn."""
        return pods[next(self._prefill) % len(pods)]

    def decode(self, pods: Sequence[DecodePod]) -> DecodePod:
        """The next in turn."""
        return pods[next(self._decode) % len(pods)]


class LeastDecode(Turns):
    """P in turns, D by the requests that are in it or on their way to it: vllm-router's `kv_aware` for D alone."""

    def decode(self, pods: Sequence[DecodePod]) -> DecodePod:
        """The one with the fewest requests."""
        return min(pods, key=lambda pod: pod.present)


class Least(LeastDecode):
    """P by the prompt tokens in it as well: `kv_aware` for both."""

    def prefill(self, pods: Sequence[PrefillPod]) -> PrefillPod:
        """The one with the fewest prompt tokens."""
        return min(pods, key=lambda pod: pod.prompt_tokens)


ROUTINGS: Mapping[str, Callable[[], Routing]] = {"turns": Turns, "least-decode": LeastDecode, "least": Least}
