"""The program that measures how fast KV cache moves from P to D (engine/scripts/measure_transfer.py).

Tests: tests/engine/scripts/test_measure_transfer.py
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pdinference.api.names import Role
from pdinference.engine.command import inline_program, literal


@dataclass(frozen=True)
class KVShape:
    """The shape of KV cache, as D reads it from one rank of P.

    Attributes:
        regions: Pieces of memory: K and V of each layer.
        block_bytes: Bytes of a block of one region.
        blocks: Blocks of a transfer.
    """

    regions: int
    block_bytes: int
    blocks: int

    @property
    def bytes(self) -> int:
        """Bytes of a transfer."""
        return self.regions * self.block_bytes * self.blocks


def measuring_program(
    shape: KVShape,
    *,
    token: str,
    port: int,
    gpu: bool,
    at_once: Sequence[int],
    seconds: float,
    limit: float,
    peer: str = "",
    variables: Mapping[Role, Mapping[str, str]] | None = None,
) -> tuple[str, ...]:
    """The program with its settings.

    Args:
        shape: What a transfer moves.
        token: Shared by the two pods.
        port: Where that pod listens.
        gpu: Whether the KV cache is in the memory of a GPU.
        at_once: Numbers of simultaneous transfers.
        seconds: Duration of the measurement for each direction and number.
        limit: Seconds until the program gives up.
        peer: Address of the pod in the place of P; empty for that pod itself.
        variables: Environment of each role, if one container is in the place of both.
    """
    settings = {
        "token": token,
        "peer": peer,
        "variables": variables or {},
        "port": port,
        "gpu": gpu,
        "regions": shape.regions,
        "block": shape.block_bytes,
        "blocks": shape.blocks,
        "atOnce": list(at_once),
        "seconds": seconds,
        "limit": limit,
    }
    return (*inline_program("measure_transfer"), literal(json.dumps(settings)))
