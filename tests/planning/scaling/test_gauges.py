"""Queries of gauges: user input cannot leave its quotes or its namespace."""

import json
import re

import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import Role
from pdinference.planning.scaling.gauges import UnsafeNameError, gauge_query, selected_role, sum_query

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)
LABELS = st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,9}", fullmatch=True), TEXT, max_size=4)
METRIC = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,9}", fullmatch=True)
_MATCHER = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\.)*"'


@given(METRIC, LABELS, TEXT)
def test_a_users_query_is_one_selector_in_its_namespace(metric: str, labels: dict[str, str], namespace: str) -> None:
    query = sum_query(metric, labels, namespace)
    found = re.fullmatch(rf"sum\({re.escape(metric)}\{{({_MATCHER}(?:,{_MATCHER})*)\}}\)", query)
    assert found is not None
    pairs = [one.partition("=")[::2] for one in re.findall(_MATCHER, found[1])]
    assert [(label, json.loads(value)) for label, value in pairs] == [*labels.items(), ("namespace", namespace)]


@given(METRIC, LABELS)
def test_prometheus_reads_a_users_query_as_it_is_meant(metric: str, labels: dict[str, str]) -> None:
    labels.pop("__name__", None)
    parsed = promql_parser.parse(sum_query(metric, labels, "team"))
    assert isinstance(parsed, promql_parser.AggregateExpr)
    selector = parsed.expr
    assert isinstance(selector, promql_parser.VectorSelector)
    found = sorted((matcher.name, matcher.value) for matcher in selector.matchers.matchers)
    assert found == sorted([*labels.items(), ("namespace", "team")])


@given(TEXT, LABELS)
def test_any_other_name_is_refused(name: str, labels: dict[str, str]) -> None:
    if re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name, re.ASCII):
        return
    with pytest.raises(UnsafeNameError):
        sum_query(name, labels, "team")
    with pytest.raises(UnsafeNameError):
        sum_query("metric", {**labels, name: "x"}, "team")


def test_a_gauge_is_that_of_one_role_and_of_the_operators_pods() -> None:
    own = 'inference_namespace="team",inference_name="llama",inference_role="decode"'
    assert gauge_query("pdinference_kv_usage", "team", "llama", Role.DECODE) == f"max(pdinference_kv_usage{{{own}}})"
    query = gauge_query("pdinference_kv_usage", "team", "llama", Role.DECODE, "operators")
    assert query == f'max(pdinference_kv_usage{{{own},namespace="operators"}})'


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"pdinference.io/name": "llama"},
        {"pdinference.io/name": "llama", "pdinference.io/role": "router"},
        {"pdinference.io/name": "llama", "pdinference.io/role": "decode", "namespace": "other"},
    ],
)
def test_other_labels_select_no_role(labels: dict[str, str]) -> None:
    assert selected_role(labels) is None
