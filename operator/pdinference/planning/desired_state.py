"""The desired state of a PDInference, as far as decisions and the status read it.

Tests: tests/planning/test_status.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.memory import NO_VERDICT, MemoryVerdict
from pdinference.planning.condition_changes import ConditionResult
from pdinference.planning.objectives import StatedObjectives
from pdinference.planning.scaling.scale_spec import ScaleSpec
from pdinference.planning.transfer_measurements import ON_CPU, Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """What a valid spec asks for.

    Attributes:
        revision: The target revision.
        roles: P and D, as far as they have pods of their own.
        replicas: `replicas` of each role that the mode has; for autoscaled roles, the initial count.
        scale: Ranges of P and D, their ratio, and the GPU budget.
        progress_deadline: How long a roll-out may make no progress.
        memory: Whether the model fits its devices.
        pinned: Whether P is pinned to products; None where P has no accelerator, and without P.
        clients_authenticated: Whether clients outside the cluster need an API key; None where they reach no router.
        verifies_model: Whether P and D check their model before vLLM starts.
        sleeps_after: Seconds without a request until P and D scale to zero; None for never.
        decode_computes_prompts: Whether D computes prompts while no P pod is ready (`router.whenNoPrefill: Serve`).
        transfer_path: How the KV cache goes from P to D; None if it does not.
        repairs: Whether a pod whose KV transfer is proven broken is restarted (`transfer.repair`).
        objectives: The latency objectives; None without any.
    """

    revision: str
    roles: tuple[Role, ...]
    replicas: Mapping[Role, int]
    scale: ScaleSpec
    progress_deadline: timedelta
    memory: MemoryVerdict = NO_VERDICT
    pinned: ConditionResult | None = None
    clients_authenticated: ConditionResult | None = None
    verifies_model: bool = False
    sleeps_after: int | None = None
    decode_computes_prompts: bool = True
    transfer_path: Path | None = ON_CPU
    repairs: bool = True
    objectives: StatedObjectives | None = None

    @property
    def autoscaled(self) -> tuple[Role, ...]:
        """The roles that have a scale target."""
        return tuple(role for role in ENGINE_ROLES if self.scale.roles[role].autoscaled)
