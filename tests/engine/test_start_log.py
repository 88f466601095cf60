"""Phases of a start, from a log of vLLM on an H200, and from the sources of the installed vLLM."""

import importlib.util
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pdinference.engine.scripts import compile_cache
from pdinference.engine.start_log import COMPILE_CACHE_LINE, PHASES, Line, phase_seconds

BEGIN = datetime(2026, 11, 29, 15, tzinfo=UTC)
LOG = Path(__file__).parent / "logs" / "vllm-0.26-h200.txt"
"""Lines of the third start in benchmarks/results/starts.md, after the seconds since the process began."""


def lines() -> list[Line]:
    found = (line.split(" ", 1) for line in LOG.read_text(encoding="utf-8").splitlines())
    return [(BEGIN + timedelta(seconds=float(seconds)), text) for seconds, text in found]


def test_a_start_on_an_h200() -> None:
    found = {phase: round(seconds, 1) for phase, seconds in phase_seconds(lines(), BEGIN).items()}
    assert found == {
        "imports": 20.5,
        "engine process": 2.2,
        "device": 2.3,
        "weights": 3.4,
        "compilation": 4.6,
        "profiling": 1.1,
        "graphs": 7.2,
        "warm-up": 1.4,
        "server": 1.4,
    }
    assert list(found) == list(PHASES)


def test_a_phase_without_a_line_is_in_the_next_one() -> None:
    eager = [line for line in lines() if "Graph capturing" not in line[1] and "torch.compile" not in line[1]]
    found = phase_seconds(eager, BEGIN)
    assert not {"compilation", "graphs"} & found.keys()
    assert sum(found.values()) == pytest.approx(44.2, abs=0.1)


def test_only_the_first_start_counts() -> None:
    """An engine of a launcher starts again in the same log."""
    again = [(at + timedelta(hours=1), text) for at, text in lines()]
    assert phase_seconds([*lines(), *again], BEGIN) == phase_seconds(lines(), BEGIN)


def test_our_own_line_is_what_the_program_says() -> None:
    assert f"Compile cache: {compile_cache._restored('a' * 64, {'a': 1}, 0.1)}".startswith(COMPILE_CACHE_LINE)


@pytest.mark.vllm
@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "server"])
def test_vllm_writes_the_lines(phase: str) -> None:
    found = importlib.util.find_spec("vllm")
    assert found is not None
    assert found.origin is not None
    said, folder = re.compile(PHASES[phase]), Path(found.origin).parent
    sources = (file for place in ("entrypoints", "v1", "compilation") for file in (folder / place).rglob("*.py"))
    assert any(said.search(file.read_text(encoding="utf-8")) for file in sources)
