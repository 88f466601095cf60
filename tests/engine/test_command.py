"""The kubelet passes arguments and variables to the process unchanged."""

import re

from hypothesis import given
from hypothesis import strategies as st

from pdinference.engine.command import literal


def kubelet_expansion(text: str, variables: dict[str, str]) -> str:
    """The kubelet's rules (third_party/forked/golang/expansion): `$$` is `$`, and `$(NAME)` is replaced."""

    def expand(match: re.Match[str]) -> str:
        found = match[0]
        return "$" if found == "$$" else variables.get(found[2:-1], found)

    return re.sub(r"\$\$|\$\([^)]*\)", expand, text)


@given(st.text(alphabet="$()AB \\"))
def test_dollars_reach_the_process_as_they_were_written(text: str) -> None:
    assert kubelet_expansion(literal(text), {"A": "secret", "B": "other"}) == text
