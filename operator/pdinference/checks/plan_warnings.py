"""Warnings that follow from the memory plan of each role."""

from collections.abc import Iterator, Mapping

from pdinference.api.names import Role
from pdinference.api.validation import Problem
from pdinference.memory import RolePlan, ways_out
from pdinference.memory.kv import layer_token_bytes
from pdinference.memory.model.drafts import NO_CONFIG

_WITHOUT_CACHE = ("medusa", "mlp_speculator")
"""Methods whose drafts are heads without layers that attend."""
_COMPARE = "Start vLLM once and compare (status.plan)."


def plan_warnings(plans: Mapping[Role, RolePlan]) -> Iterator[Problem]:
    """Starts that vLLM refuses although the model fits, and what the plan leaves out."""
    for role, plan in plans.items():
        yield from _too_many_states(role, plan)
        yield from _speculation(role, plan)


def _too_many_states(role: Role, plan: RolePlan) -> Iterator[Problem]:
    """Each request needs a block for its states, or vLLM refuses to capture CUDA graphs.

    Source: `resolve_cudagraph_mode_and_sizes` in vllm/config/compilation.py: `max_num_seqs (1024) exceeds available
    Mamba cache blocks (635)`.
    """
    settings, least = plan.settings, plan.fewest_blocks.value
    if plan.facts.state is None or settings.cpu or not settings.captured or least is None or plan.blocks.value is None:
        return
    if settings.max_num_seqs > least:
        yield Problem(
            f"spec.{role}.maxNumSeqs",
            f"Each of {settings.max_num_seqs:,} requests needs a block for its states, and the KV cache has about "
            f"{plan.blocks.value:,.0f} blocks (at least {least:,.0f}). vLLM refuses to start with CUDA graphs if there "
            f"are fewer blocks than requests. Set it to at most {max(1, int(least)):,}.",
        )


def _speculation(role: Role, plan: RolePlan) -> Iterator[Problem]:
    """Drafts that the plan leaves out, with what is known of their sizes."""
    draft, settings, facts = plan.settings.draft, plan.settings, plan.facts
    if draft is None or not draft.uncounted:
        return
    shared = f", shared by {settings.tensor} ranks" if settings.tensor > 1 else ""
    missing = f"its weights (about the size of its files{shared})"
    if draft.method not in _WITHOUT_CACHE and facts.attention and not facts.unfit:
        token = layer_token_bytes(facts, settings, max(facts.attention))
        missing += f" and its KV cache ({token:,} bytes a token for each of its layers, if its heads are the model's)"
    way = ways_out.DRAFT if draft.uncounted == NO_CONFIG else _COMPARE
    yield Problem(
        f"spec.{role}.args.speculative-config",
        f"The memory plan does not count the draft ({draft.method}): {draft.uncounted}. Missing are {missing}. {way}",
    )
