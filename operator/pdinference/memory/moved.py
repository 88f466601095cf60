"""KV cache that moves from P to D: bytes of a prompt token, and the prompts that a link carries."""

from dataclasses import dataclass, replace
from typing import Final

from pdinference.memory import kv
from pdinference.memory.figures import Figure, derived, unknown
from pdinference.memory.link_speeds import GIGA, NVLINK_PULL, TCP_OF_VLLM
from pdinference.memory.plan import Inputs, RolePlan, plan_settings

FP8: Final = "engine.kvCache.dtype: fp8"


@dataclass(frozen=True, slots=True)
class MeasuredLink:
    """What joins P and D, with the bytes a second that it carried in measurements."""

    name: str
    speed: float


LINKS: Final = (MeasuredLink("TCP", TCP_OF_VLLM * GIGA), MeasuredLink("NVLink", NVLINK_PULL * GIGA))
"""Between two GPUs of one host."""
_WINDOWS: Final = "Layers with a sliding window move the end of a prompt alone, so the bytes depend on its length."

_STATES: Final = "Layers that keep a state move it once for each prompt, so the bytes of a token depend on its length."


@dataclass(frozen=True, slots=True)
class Moved:
    """What moves with a type of the KV cache.

    Attributes:
        change: The field that gives this type; empty for the type of the spec.
        token_bytes: Bytes of a prompt token, to all ranks of a D instance together.
    """

    change: str
    token_bytes: Figure

    def prompts(self, link: MeasuredLink, tokens: int) -> Figure:
        """Prompts of this length that a link carries a second, at most."""
        note = f"{link.speed / GIGA:g} GB/s / ({tokens:,} tokens x bytes of a token)."
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
    as_it_is = Moved("", token_bytes(decode))
    if settings.kv_bytes == 1:
        return (as_it_is,)
    return as_it_is, Moved(FP8, token_bytes(plan_settings(inputs, replace(settings, kv_bytes=1), decode.memory)))


def token_bytes(plan: RolePlan) -> Figure:
    """Bytes of a prompt token that move to all ranks of a D instance together.

    Args:
        plan: The plan of D.
    """
    facts = plan.facts
    if any(facts.windows):
        return unknown(_WINDOWS)
    if facts.state is not None:
        return unknown(_STATES)
    ranks = plan.settings.tensor
    note = f"KV per token of {ranks} rank{'s' if ranks > 1 else ''}."
    return derived(lambda *stages: ranks * sum(stages), note, *(stage.kv_bytes_per_token for stage in plan.stages))


def mean_token_bytes(decode: RolePlan, prompt: float) -> float:
    """The same as a mean over a prompt, for layers with a window or a state too.

    Layers with a window move the end of the prompt. Recurrent ones move their state, whatever its length.

    Args:
        decode: The plan of D.
        prompt: Tokens of the prompt.
    """
    settings, facts = decode.settings, decode.facts

    def of_layer(layer: int, window: int | None) -> float:
        return kv.layer_token_bytes(facts, settings, layer) * (1.0 if window is None else min(1.0, window / prompt))

    tokens = sum(of_layer(layer, window) for layer, window in enumerate(facts.windows))
    tokens += sum(kv.proposing_token_bytes(facts, settings))
    return settings.tensor * (tokens + kv.request_bytes(facts, settings, 0) / prompt)
