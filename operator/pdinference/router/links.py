"""Between which P and D pods the KV cache gets through. Its way is not that of requests, so no probe finds a fault."""

import time
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from pdinference.router.pod import Pod

_PAUSE_S: Final = 60.0


def linked(parameter: Pod, decode: Pod) -> bool:
    """Whether there is a link. Engines that share a pod have none to other pods (the path HostLocal)."""
    return parameter.observed.group == decode.observed.group


class Links:
    """Links that have failed. All others within a group are taken to work.

    Args:
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paused: WeakKeyDictionary[Pod, WeakKeyDictionary[Pod, float]] = WeakKeyDictionary()
        """By P pod and D pod: when the link may be used again."""

    def usable(self, parameter: Pod, decode: Pod) -> bool:
        """Whether a request may use the link: it has not failed, or a minute ago."""
        if not linked(parameter, decode):
            return False
        paused = self._paused.get(parameter)  # each request asks for many links, of which hardly any has failed
        return paused is None or paused.get(decode, 0.0) <= self._clock()

    def has_failed(self, parameter: Pod, decode: Pod) -> bool:
        """Whether KV cache did not get through, and none has since."""
        return decode in self._paused.get(parameter, ())

    def used(self, parameter: Pod, decode: Pod) -> None:
        """Note that a request uses the link. If it has failed, others wait for the result."""
        if self.has_failed(parameter, decode):
            self.failed(parameter, decode)

    def failed(self, parameter: Pod, decode: Pod) -> None:
        """Pause the link."""
        paused = self._paused.setdefault(parameter, WeakKeyDictionary())
        paused[decode] = self._clock() + _PAUSE_S

    def worked(self, parameter: Pod, decode: Pod) -> None:
        """Note that KV cache got through."""
        if (paused := self._paused.get(parameter)) is not None:
            paused.pop(decode, None)
