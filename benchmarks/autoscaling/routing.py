"""How the router chooses pods: our router's own policies, and vllm-router's as the operator used it before."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import get_args

from pdinference.api.names import Role
from pdinference.api.v1alpha1.router import RouterPolicy
from pdinference.router.calls import Call
from pdinference.router.choice import Choose, RoundRobin, least_requests, policies
from pdinference.router.pods import Observed, Pod

_SESSIONS = 200
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Routing:
    """A way of choosing.

    Attributes:
        choose: The policy for each role.
        at_once: Whether D is chosen with P, when the request comes. Our router chooses it when P has answered.
    """

    choose: Mapping[Role, Choose]
    at_once: bool = False


def _vllm_router() -> Routing:
    """`round_robin` for P, and for D `kv_aware`, which counts the requests that it has sent."""
    return Routing({Role.PARAMETER: RoundRobin(), Role.DECODE: least_requests}, at_once=True)


def _ours(policy: str) -> Routing:
    return Routing(policies(policy))


OURS: tuple[str, ...] = get_args(RouterPolicy)
VLLM_ROUTER = "vllm-router"
ROUTINGS: Mapping[str, Callable[[], Routing]] = {name: partial(_ours, name) for name in OURS} | {
    VLLM_ROUTER: _vllm_router
}


class Known(Pod):
    """What the router knows of a simulated pod. None hangs, so the time of its last byte does not matter."""

    def heard(self) -> None:
        """Do nothing: there is no event loop whose clock could be read."""


class Sent:
    """A request that counts as load of a pod. The policies read nothing of it."""

    began_at = 0.0
    stream = True
    waits_for_kv_cache = False

    def abort(self, reason: str) -> None:
        """Never called."""


def routed(role: Role, number: int) -> Known:
    """A simulated pod for the router."""
    name = f"{role}-{number}"
    return Known(Observed(name, name, role, f"{name}:8000", ready=True))


def call(number: int, prompt: int) -> Call:
    """A request with a beginning of its own, of one of many sessions."""
    body = b"%d " % number
    return Call("/v1/completions", body.ljust(prompt * _BYTES_PER_TOKEN), session=str(number % _SESSIONS))
