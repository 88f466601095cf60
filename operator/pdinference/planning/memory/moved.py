"""KV cache that moves from P to D: bytes of a prompt token, and the prompts that a link carries."""

from dataclasses import dataclass, replace
from typing import Final

from pdinference.planning.memory.figures import Figure, derived, unknown
from pdinference.planning.memory.plan import Inputs, RolePlan, plan_settings

FP8: Final = "engine.kvCache.dtype: fp8"


@dataclass(frozen=True, slots=True)
class Link:
    """What joins P and D, with the bytes a second that it carried in measurements (docs/tuning.md)."""

    name: str
    speed: float


LINKS: Final = (Link("TCP", 2.6e9), Link("NVLink", 66e9))
"""Between two GPUs of one host. vLLM over TCP reached 2.6 GB/s, NIXL alone 3.2."""
_WINDOWS: Final = "Layers with a sliding window move the end of a prompt alone, so the bytes depend on its length."


@dataclass(frozen=True, slots=True)
class Moved:
    """What moves with a type of the KV cache.

    Attributes:
        change: The field that gives this type; empty for the type of the spec.
        token_bytes: Bytes of a prompt token, to all ranks of a D instance together.
    """

    change: str
    token_bytes: Figure

    def prompts(self, link: Link, tokens: int) -> Figure:
        """Prompts of this length that a link carries a second, at most."""
        note = f"{link.speed / 1e9:g} GB/s / ({tokens:,} tokens x bytes of a token)."
        return derived(lambda size: link.speed / size / tokens, note, self.token_bytes)

    def as_json(self) -> dict[str, object]:
        """Bytes, and prompt tokens a second by link; each number is `{value, source, note}`."""
        return {
            "change": self.change,
            "bytesPerPromptToken": self.token_bytes.as_json(),
            "promptTokensPerSecond": {link.name: self.prompts(link, 1).as_json() for link in LINKS},
        }


def moved(inputs: Inputs, decode: RolePlan) -> tuple[Moved, ...]:
    """What moves as the spec is, and with a KV cache in FP8 if it is in a larger type; empty without GPUs.

    Args:
        inputs: Inputs of the plan.
        decode: The plan of D.
    """
    settings = decode.settings
    if settings.cpu or not inputs.spec.transfers_kv:
        return ()
    as_it_is = Moved("", _token_bytes(decode))
    if settings.kv_bytes == 1:
        return (as_it_is,)
    return as_it_is, Moved(FP8, _token_bytes(plan_settings(inputs, replace(settings, kv_bytes=1), decode.memory)))


def _token_bytes(plan: RolePlan) -> Figure:
    if any(plan.facts.windows):
        return unknown(_WINDOWS)
    ranks = plan.settings.tensor
    note = f"KV per token of {ranks} rank{'s' if ranks > 1 else ''}."
    return derived(lambda *stages: ranks * sum(stages), note, *(stage.kv_bytes_per_token for stage in plan.stages))
