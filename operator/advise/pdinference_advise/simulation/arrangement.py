"""What serves a load: engines of both roles, and the way between them.

Tests: tests/advise/simulation/test_fleet.py
"""

from dataclasses import dataclass

from pdinference.performance.links import Way
from pdinference.performance.service import SERVICE, Service
from pdinference.performance.step import StepModel
from pdinference.router.ways import ALL_WAYS, NO_OBJECTIVES, WayObjectives
from pdinference.router.ways import Way as WayOfRequest
from pdinference_advise.simulation.engine import EngineLimits


@dataclass(frozen=True, slots=True)
class EngineKind:
    """The engines of a role, all alike.

    Attributes:
        steps: How long a step takes.
        limits: What an engine holds.
        prefix_caching: Whether it keeps the KV cache of prompts for later ones.
    """

    steps: StepModel
    limits: EngineLimits
    prefix_caching: bool = True


@dataclass(frozen=True, slots=True)
class Split:
    """P beside D.

    Attributes:
        kind: P's engines.
        engines: Number of them.
        way: The way of the KV cache.
        token_bytes: Bytes that move for each prompt token.
        groups: Number of pods that hold P and D (the path HostLocal), each with a way of its own; 0: any P reaches any
            D.
        adaptive: Whether each request goes the way that costs least (`spec.router.disaggregation`).
        allowed: The ways to choose from then (`spec.router.whenNoPrefill`).
        objectives: What requests should keep then.
        routers: Number of router pods. Each learns by itself, and knows its own requests.
    """

    kind: EngineKind
    engines: int
    way: Way
    token_bytes: float
    groups: int = 0
    adaptive: bool = False
    allowed: frozenset[WayOfRequest] = ALL_WAYS
    objectives: WayObjectives = NO_OBJECTIVES
    routers: int = 1


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What serves a load.

    Attributes:
        kind: D's engines; without P they compute prompts as well.
        engines: Number of them.
        split: P; None for the mode Aggregated.
        policy: `spec.router.policy`.
        service: What a request takes besides.
    """

    kind: EngineKind
    engines: int
    split: Split | None = None
    policy: str = "least_loaded"
    service: Service = SERVICE
