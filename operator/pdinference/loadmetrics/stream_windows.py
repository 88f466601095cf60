"""The latencies of streamed answers over some minutes, for each router pod of a resource with objectives.

Tests: tests/integration/test_objectives.py
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Final

from pdinference.cluster.kinds import Owner
from pdinference.cluster.state.records import PodRecord
from pdinference.loadmetrics.counter_window import SPACING_S, CounterWindow
from pdinference.loadmetrics.policies import Policies
from pdinference.loadmetrics.streams import StreamExposition, stream_counts
from pdinference.planning.objectives import StreamCounts, outline
from pdinference.planning.router_window import WINDOW_S

_FRESH_S: Final = 40.0
"""Maximum age of the latest reading of a window that counts."""


class StreamWindows:
    """The windows of router pods.

    Args:
        policies: The objectives of resources. The latencies of others are not read.
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, policies: Policies, clock: Callable[[], float]) -> None:
        self._policies = policies
        self._clock = clock
        self._windows: dict[str, CounterWindow] = {}

    def exposition(self, pod: PodRecord) -> StreamExposition | None:
        """For the next response of a pod; None if its resource has no objectives, or the last reading is young."""
        if pod.owner is None or self._policies.objectives(pod.owner) is None:
            return None
        window = self._windows.get(pod.uid)
        due = window is None or self._clock() - window.latest_at >= SPACING_S
        return StreamExposition() if due else None

    def note(self, pod: PodRecord, exposition: StreamExposition) -> None:
        """Add a response. One that lacks latencies, for example of an older router, ends the window."""
        counts, window = exposition.counts, self._windows.get(pod.uid)
        if counts is None:
            self._windows.pop(pod.uid, None)
        elif window is None:
            self._windows[pod.uid] = CounterWindow(self._clock(), counts)
        else:
            window.add(self._clock(), counts)

    def keep(self, live: Collection[str]) -> None:
        """Remove the windows of all pods except these."""
        self._windows = {uid: window for uid, window in self._windows.items() if uid in live}

    def counts(self, pods: Iterable[PodRecord]) -> StreamCounts | None:
        """The streamed answers of a resource with these router pods; None if no pod has reported them recently."""
        windows = self._fresh(pods)
        return stream_counts(windows) if windows else None

    def view(self, owner: Owner, pods: Iterable[PodRecord]) -> Hashable:
        """Changes when the status may have to: with the attainment, and each time a window has passed."""
        stated, windows = self._policies.objectives(owner), self._fresh(pods)
        if stated is None or not windows:
            return None
        since = min(window.since for window in windows)
        return outline(stated, stream_counts(windows)), int((self._clock() - since) / WINDOW_S)

    def _fresh(self, pods: Iterable[PodRecord]) -> list[CounterWindow]:
        oldest = self._clock() - _FRESH_S
        found = (self._windows.get(pod.uid) for pod in pods)
        return [window for window in found if window is not None and window.latest_at >= oldest]
