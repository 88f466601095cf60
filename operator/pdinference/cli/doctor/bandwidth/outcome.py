"""The result of a measurement, as the pod of D reports it. Pods are not trusted.

Tests: tests/cli/doctor/bandwidth/test_bandwidth.py
"""

from typing import Annotated, Any, Literal

import msgspec

from pdinference.api.plain_text import plain
from pdinference.memory.link_speeds import GIGA

_LONGEST = 128
Speed = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Names = Annotated[list[str], msgspec.Meta(max_length=16)]


class Case(msgspec.Struct, rename="camel", frozen=True):
    """Transfers in one direction.

    Attributes:
        direction: Whether D pulled or P pushed.
        at_once: Number of simultaneous transfers.
        first: Bytes a second of the first ones, which set up connections.
        speed: Bytes a second of all others together.
        transfers: Their number.
        right: Whether the memory had the right contents then.
    """

    direction: Literal["pull", "push"]
    at_once: Annotated[int, msgspec.Meta(ge=1, le=64)]
    first: Speed
    speed: Speed
    transfers: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    right: bool


class PodFacts(msgspec.Struct, rename="camel", frozen=True):
    """What a pod sees of its node.

    Attributes:
        memlock_bytes: Limit of locked memory; -1 without one.
        rdma_devices: RDMA devices of the node.
        rdma_device_files: Those that the pod may open.
        nvidia_device_files: Device files of GPUs in the pod.
        imex_channels: IMEX channels in the pod.
        gpus: GPUs that CUDA finds.
        pid_namespace: Identity of the PID namespace.
        dns: Whether the cluster's DNS answers.
    """

    memlock_bytes: int
    rdma_devices: Names
    rdma_device_files: Names
    nvidia_device_files: Names
    imex_channels: Names
    gpus: Names
    interfaces: Names
    pid_namespace: str
    dns: bool


class Measured(msgspec.Struct, rename="camel", frozen=True):
    """The result.

    Attributes:
        cases: One for each direction and number of simultaneous transfers.
        lanes: Transports and devices that UCX chose between the pods; empty if its log does not have them.
    """

    cases: Annotated[list[Case], msgspec.Meta(min_length=1, max_length=16)]
    lanes: Names
    parameter: PodFacts
    decode: PodFacts

    def speed(self, direction: str) -> float:
        """The highest GB/s in a direction."""
        return max((case.speed for case in self.cases if case.direction == direction), default=0.0) / GIGA


class NoResultError(Exception):
    """The message of the pod is no result."""


def parse(message: str) -> Measured:
    """Read a termination message.

    Raises:
        NoResultError: It is not as expected.
    """
    try:
        found: Any = msgspec.json.decode(message)
        return msgspec.convert(_plain(found), Measured)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise NoResultError(f"The pod of D reported no result: {plain(str(error), 200)}") from None


def _plain(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _plain(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_plain(each) for each in part]
    return plain(part, _LONGEST) if isinstance(part, str) else part
