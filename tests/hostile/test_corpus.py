"""Every document of the corpus is rejected at the right field, or is harmless."""

import pytest

from pdinference.api.validation import Problem
from pdinference.checks import examine_any
from tests.hostile.corpus import CORPUS, HARMLESS, REFUSED
from tests.hostile.entries import Entry
from tests.hostile.limits import cpu_limit
from tests.hostile.looks import SETTINGS, problems_of
from tests.hostile.model_configs import MODEL_CONFIGS
from tests.hostile.resources import RESOURCES


def test_the_corpus_is_large_and_says_of_each_document_what_is_expected() -> None:
    assert len(CORPUS) == len(RESOURCES) + len(MODEL_CONFIGS) > 200
    assert all(bool(entry.refused) != bool(entry.harmless) for entry in CORPUS.values())


@pytest.mark.parametrize("entry", REFUSED.values(), ids=REFUSED)
def test_a_hostile_document_is_refused(entry: Entry) -> None:
    with cpu_limit():
        found = problems_of(entry.document, model=entry.model)
    field = Problem(entry.refused, "").field  # as it is written when it is long
    assert any(problem.field == field and entry.says in problem.message for problem in found), found


@pytest.mark.parametrize("entry", HARMLESS.values(), ids=HARMLESS)
def test_a_document_that_is_accepted_does_no_harm(entry: Entry) -> None:
    with cpu_limit():
        assert problems_of(entry.document, model=entry.model) == ()
    memory = getattr(examine_any(entry.document, SETTINGS, known=lambda _: entry.model), "memory", None)
    assert entry.says in getattr(memory, "message", "")
