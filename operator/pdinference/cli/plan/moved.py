"""Prints what moves from P to D, and how many prompts that allows.

Tests: tests/cli/test_plan_comparison.py
"""

from collections.abc import Iterator, Sequence

from rich.table import Table

from pdinference.cli.plan.figures import count
from pdinference.memory.link_speeds import GIGA
from pdinference.memory.moved import FP8, LINKS, Moved

_LENGTHS = (1_000, 8_000)
_ADVICE = (
    f"While the path of the KV cache limits the prompts (condition KVTransfer: Saturated), {FP8} halves the bytes. "
    "Measured over TCP on H200s with an 8B model and 3 prompts of 8,000 tokens a second (docs/tuning.md): median time "
    "to the first token 556 ms, in bf16 4,266. Over NVLink it changed little. Evaluate the answers of your model with "
    "it first."
)


def moved_lines(rows: Sequence[Moved], longest: int | None) -> Iterator[Table | str]:
    """A table, and advice under it; nothing if nothing moves, or the bytes are not known.

    Args:
        rows: What moves, by type of the KV cache.
        longest: Tokens of the longest request; None if unknown.
    """
    if not any(row.token_bytes.known for row in rows):
        return
    lengths = [length for length in _LENGTHS if longest is None or length <= longest] or [longest or _LENGTHS[0]]
    yield _table(rows, lengths)
    if any(row.change for row in rows):
        yield _ADVICE


def _table(rows: Sequence[Moved], lengths: Sequence[int]) -> Table:
    words = " / ".join(f"{length:,}" for length in lengths)
    title = f"KV cache that moves from P to D; most prompts a second, of {words} tokens"
    table = Table(title=title, title_justify="left")
    table.add_column("KV cache", no_wrap=True)
    table.add_column("bytes a prompt token", justify="right")
    for link in LINKS:
        table.add_column(f"{link.name}, {link.speed / GIGA:g} GB/s", justify="right", no_wrap=True)
    for row in rows:
        prompts = (" / ".join(f"{row.prompts(link, n).value or 0:,.1f}" for n in lengths) for link in LINKS)
        table.add_row(row.change or "as it is", count(row.token_bytes), *prompts)
    return table
