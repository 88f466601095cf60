"""Whether KEDA stands in."""

import pytest

from pdinference.planning.scaling.source import stands_in


@pytest.mark.parametrize("already", [True, False])
def test_what_is_known_decides_and_else_nothing_changes(already: bool) -> None:
    assert stands_in(served=True, already=already) is False
    assert stands_in(served=False, already=already) is True
    assert stands_in(served=None, already=already) is already
