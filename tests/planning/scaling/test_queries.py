"""What every query is; whether it computes the right thing, a real Prometheus decides (tests/integration)."""

import json
import re
from itertools import product

import pytest

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.scaling.queries import UNSPEAKABLE, Query, matchers
from pdinference.planning.scaling.signals import Signal

OURS = 'namespace="models",pdinference_io_name="llama"'
EVERY = list(product(sorted(set(Signal) - UNSPEAKABLE), ENGINE_ROLES))


@pytest.mark.parametrize(("signal", "role"), EVERY)
def test_every_series_is_of_pods_of_this_resource(signal: Signal, role: Role) -> None:
    query = Query(signal, role, matchers("models", "llama")).promql(900)
    selectors = re.findall(r"(?:vllm:\w+|up)\{([^}]*)\}", query)
    assert selectors
    assert query.count("{") == len(selectors)
    assert all(selector.startswith(OURS + ",pdinference_io_role=") for selector in selectors)


@pytest.mark.parametrize("text", ['"} or vector(1e9) or up{a="', "back\\slash", "line\nbreak", "ünï", "{{template}}"])
def test_no_text_gets_out_of_its_quotes(text: str) -> None:
    found = matchers(text, "llama")
    quoted = re.fullmatch(r'namespace=("(?:[^"\\\n]|\\.)*"),pdinference_io_name="llama"', found)
    assert quoted is not None
    assert json.loads(quoted[1]) == text


def test_the_load_of_d_depends_on_what_reaches_p_and_that_of_p_on_p_alone() -> None:
    decode = Query(Signal.DECODE_LOAD, Role.DECODE, OURS).promql()
    prefill = Query(Signal.PREFILL_LOAD, Role.PARAMETER, OURS).promql()
    assert 'pdinference_io_role="parameter"' in decode
    assert 'pdinference_io_role="decode"' not in prefill


def test_a_silent_pod_counts_as_at_its_target_where_that_is_known() -> None:
    query = Query(Signal.KV_USAGE, Role.DECODE, OURS)
    assert "0.85 * (count(" in query.promql(850)
    assert "up{" not in query.promql()


@pytest.mark.parametrize("signal", UNSPEAKABLE)
def test_what_promql_cannot_compute_has_no_query(signal: Signal) -> None:
    with pytest.raises(KeyError):
        Query(signal, Role.DECODE, OURS).promql()
