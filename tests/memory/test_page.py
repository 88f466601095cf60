"""The numbers and lists of the pages about memory are those of the code."""

import re

from pdinference.memory.model.architectures import ARCHITECTURES, LAST_VERSIONS
from tests.conftest import REPOSITORY
from tests.memory.logged import CAPACITIES, GIB, ROWS
from tests.memory.plans import known

MEASURED = (REPOSITORY / "benchmarks" / "results" / "memory.md").read_text(encoding="utf-8")
MODELS = (REPOSITORY / "docs" / "memory-plan.md").read_text(encoding="utf-8")


def test_each_run_of_the_h200_has_a_row_with_the_numbers_of_the_plan() -> None:
    runs = [(row.planned, row.tokens) for row in ROWS] + [(row.planned, row.tokens) for row in CAPACITIES.values()]
    for made, tokens in runs:
        weights, kv_cache = (f"{known(part.value) / GIB:.2f} / " for part in (made.stage.weights, made.stage.kv_cache))
        (row,) = (line for line in MEASURED.splitlines() if f"{known(made.tokens.value):,.0f} / {tokens:,}" in line)
        assert all(cell in row for cell in (weights, kv_cache, f"{known(made.tokens.value) / tokens - 1:+.2%}"[:-1]))


def test_the_page_lists_each_type_that_the_plan_knows() -> None:
    counted = MODELS.partition("Weights are computed for these values of `model_type`.")[2].partition("\n\n")[0]
    listed = counted.partition("`):")[2].partition(". For others")[0]
    assert set(re.findall(r"\w+", listed)) == ARCHITECTURES.keys() - LAST_VERSIONS.keys()
