"""The size of the KV cache's tiers in tokens, for all devices of one instance."""

from pdinference.memory import kv
from pdinference.memory.figures import GIB, Figure, ceil_div, derived, unknown
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.settings import Settings

_PAGE = 4096  # a chunk begins on a page of memory (SharedOffloadRegion in vllm/v1/kv_offload/cpu)

_BLOCKS_DIFFER = "Layers keep blocks of different sizes, or states, so the tokens in a tier depend on the requests."


def tier_tokens(facts: ModelFacts, settings: Settings, per_token: Figure) -> dict[str, Figure]:
    """Tokens in each tier that there is, by the tier's name.

    Args:
        facts: The model.
        settings: How it is run.
        per_token: KV cache of a token; where that is unknown, so is everything here.
    """
    groups = kv.groups_of(facts, settings)
    chunk, block = _chunk_bytes(facts, settings), groups[0].cache.block
    if len({group.cache.block for group in groups}) > 1:
        per_token = unknown(_BLOCKS_DIFFER)

    def tokens(size: int, copies: int) -> int:
        return size // copies // chunk * copies * block // len(groups)

    each = f"in chunks of {chunk:,} bytes: a block of {block} tokens on all ranks"
    found = {}
    if settings.cpu_tier is not None:
        size, copies = settings.cpu_tier, settings.data
        found["cpu"] = derived(lambda _: tokens(size, copies), f"{size / GIB:g} GiB, {each}.", per_token)
    if settings.disk_tier is not None:
        disk = settings.disk_tier
        note = f"{disk / GIB:g} GiB, {each}. The side-car keeps it 80 to 90 % full."
        found["disk"] = derived(lambda _: tokens(disk, 1), note, per_token)
    return found


def _chunk_bytes(facts: ModelFacts, settings: Settings) -> int:
    """Bytes of one block over all ranks of a copy of the model.

    Source: `CPUOffloadingSpec.__init__` in vllm/v1/kv_offload/cpu/spec.py; the latent vectors of MLA, which all ranks
    share, are kept once.
    """
    largest = max(kv.block_bytes(facts, settings, stage) for stage in range(settings.stages))
    once = facts.mla is not None and settings.stages == 1
    return ceil_div(largest * (1 if once else settings.tensor * settings.stages), _PAGE) * _PAGE
