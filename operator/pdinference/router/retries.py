"""What follows when pods fail a request: how often it is sent again, and whether D computes its prompt. Pure."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from pdinference.api.v1alpha1.router import WhenNoPrefill
from pdinference.router.pod import Pod

MOST_FAILURES: Final = 3
"""Pods of a role that may fail while they have a request. After that the request fails: it may be what kills them. A
pod that refused the connection does not count."""
FIRST_PAUSE_S: Final = 0.05
_MOST_DOUBLINGS: Final = 5


@dataclass(slots=True)
class Failures:
    """The failures of one step of a request.

    Attributes:
        pods: The pods that failed it, and the other ranks of their vLLM. They get it again only if there are no others.
        errors: Those of the pods that answered with an error.
        last: The reason of the last failure; empty before any.
    """

    pods: list[Pod] = field(default_factory=list)
    errors: set[Pod] = field(default_factory=set)
    last: str = ""
    _times: int = 0
    _reached: int = 0

    def add(self, pod: Pod, reason: str, *, reached: bool, answered: bool = False) -> None:
        """Note a failure.

        Args:
            pod: The pod.
            reason: Why, for metrics and logs.
            reached: Whether the pod may have begun to compute.
            answered: Whether it answered, with an error.
        """
        self.pods += pod.together
        if answered:
            self.errors.add(pod)
        self._times += 1
        self.last = reason
        self._reached += reached

    def forgive(self) -> None:
        """Let the pods get the request again. Their failures count on."""
        self.pods.clear()
        self._times = 0

    @property
    def are_too_many(self) -> bool:
        """Whether no further pod gets the request."""
        return self._reached >= MOST_FAILURES

    @property
    def pause(self) -> float:
        """Seconds until the next try."""
        return FIRST_PAUSE_S * 2.0 ** min(self._times - 1, _MOST_DOUBLINGS)


class NoPrefill(Enum):
    """Why P did not compute a prompt."""

    NO_POD = auto()
    """There is no P pod."""
    NO_LINK = auto()
    """KV cache does not get from any P pod to D."""
    FAILURES = auto()
    """P pods failed it."""
    NO_HANDOVER = auto()
    """The answer of P does not say where the KV cache is: another P pod would answer the same."""

    @classmethod
    def of(cls, failures: Failures, *, has_links: bool) -> "NoPrefill":
        """Why no P pod is left.

        Args:
            failures: Those of P pods.
            has_links: Whether there are other P pods that have links to D pods, be it ones that failed.
        """
        if failures.last:
            return cls.FAILURES
        return cls.NO_LINK if has_links else cls.NO_POD

    def is_left_to_decode(self, rule: WhenNoPrefill) -> bool:
        """Whether D computes the prompt."""
        return rule == "Serve" or self is NoPrefill.NO_HANDOVER
