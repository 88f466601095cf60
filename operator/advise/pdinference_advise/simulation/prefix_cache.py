"""The prefix cache of an engine: which beginnings of prompts it still has KV cache of.

Tests: tests/advise/simulation/test_fleet.py
"""

from collections import OrderedDict

from pdinference_advise.simulation.arrivals import PREFIX_BLOCK


class PrefixCache:
    """Least recently used blocks go first, as in vLLM (vllm/v1/core/block_pool.py).

    Args:
        tokens: How many tokens it holds.
    """

    def __init__(self, tokens: int) -> None:
        self._most = max(1, tokens // PREFIX_BLOCK)
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def has(self, prefix: tuple[int, ...]) -> int:
        """Tokens at the beginning of a prompt that are there."""
        blocks, found = self._blocks, 0
        for block in prefix:
            if block not in blocks:
                break
            found += 1
        return found * PREFIX_BLOCK

    def hit(self, prefix: tuple[int, ...]) -> int:
        """Tokens at the beginning of a prompt that are there. From then on, all of its blocks are."""
        found, blocks = self.has(prefix), self._blocks
        for block in prefix:
            blocks[block] = None
            blocks.move_to_end(block)
        while len(blocks) > self._most:
            blocks.popitem(last=False)
        return found
