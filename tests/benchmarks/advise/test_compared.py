"""Other tools and the step after a prompt, against the page."""

import pytest

from benchmarks.advise import after_prompts
from benchmarks.advise.against import tables
from benchmarks.advise.against.recording import TOOLS, recorded
from pdinference.performance.calibration import H200
from tests.conftest import REPOSITORY


def test_the_page_has_what_was_recorded_of_other_tools_and_what_is_predicted() -> None:
    """A change of the model or of recorded.json shows in the page. Of our predictions it has those of twelve loads."""
    page = (REPOSITORY / "benchmarks/results/advise-compared.md").read_text(encoding="utf-8").splitlines()
    found = [*tables.six_loads(), *tables.six_errors(), *tables.left_out(), *after_prompts.lines()]
    found += after_prompts.lines_of_blocks()
    assert [line for line in found if line not in page] == []


def test_each_measured_load_has_an_answer_of_each_tool() -> None:
    for tool in TOOLS:
        assert recorded()["versions"][tool]
        assert {row.case.key for row in tables.rows()} == set(recorded()[tool])


def test_a_step_after_one_with_a_prompt_takes_hardly_longer() -> None:
    """700 / 40 at 30 a second: nine of ten gaps are no longer than such a step; the model had 11.4 ms for it."""
    (row,) = (row for row in after_prompts.measured() if (row["prompt"], row["rate"]) == (700, 30))
    found = after_prompts.simulated(row, H200.after_prefill)
    assert 1000 * found.gaps.quantile(0.9) == pytest.approx(row["gap"]["p90"], rel=0.1)


def test_many_short_prompts_are_predicted() -> None:
    """Loads of the same engines that no calibration and no table of times has used."""
    for row in after_prompts.measured():
        whole = after_prompts.simulated(row, H200.after_prefill).whole.at(50)
        assert 1000 * whole == pytest.approx(row["whole"]["p50"], rel=0.07), (row["prompt"], row["rate"])


def test_blocks_of_16_tokens_take_a_step_as_long_as_those_of_128() -> None:
    """The model does not know their size."""
    gaps: dict[int, dict[bool, float]] = {}
    for row in after_prompts.measured_of_blocks():
        gaps.setdefault(row["prompt"], {})[row["d"][0] == "s0"] = row["gap"]["p50"]
    assert len(gaps) == 3
    for small_and_large in gaps.values():
        assert small_and_large[True] == pytest.approx(small_and_large[False], abs=0.05)
