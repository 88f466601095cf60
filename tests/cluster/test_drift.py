"""A live object is in order if it contains the manifest, in any form that the server writes."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.quantities import quantity
from pdinference.cluster.drift import contains, difference


@pytest.mark.parametrize(
    ("live", "desired"),
    [
        ({"cpu": "500m"}, {"cpu": "0.5"}),
        ({"memory": "2Gi"}, {"memory": "2048Mi"}),
        ({"memory": "1e3"}, {"memory": "1k"}),
        ({"cpu": "2"}, {"cpu": 2}),
        ({}, {"labels": {}}),
        ({}, {"items": []}),
        ({}, {"hostNetwork": False}),
        ({}, {"delay": 0}),
        ({"a": 1, "defaulted": True}, {"a": 1}),
        ({"ports": [{"port": 80, "protocol": "TCP"}]}, {"ports": [{"port": 80}]}),
        ({"emptyDir": {}}, {"emptyDir": {}}),
    ],
)
def test_the_servers_own_way_of_writing_is_no_drift(live: Any, desired: Any) -> None:
    assert contains(live, desired)


@pytest.mark.parametrize(
    ("live", "desired"),
    [
        ({"replicas": 3}, {"replicas": 1}),
        ({}, {"replicas": 1}),
        ({"args": ["a", "b"]}, {"args": ["a"]}),
        ({"args": ["b", "a"]}, {"args": ["a", "b"]}),
        ({"ok": True}, {"ok": False}),
        ({"n": 1}, {"n": True}),
        ({"image": "x:1"}, {"image": "x:2"}),
        ({"labels": {}}, {"labels": {"a": "b"}}),
        ({"memory": "2Gi"}, {"memory": "2G"}),
        ({"a": {"b": 1}}, {"a": []}),
        ({"a": []}, {"a": {"b": 1}}),
    ],
)
def test_what_somebody_changed_is_drift(live: Any, desired: Any) -> None:
    assert not contains(live, desired)


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", "0.5"), ("2Gi", str(2 * 2**30)), ("1E", str(10**18)), ("1e3", "1000"), ("100", "100"), (".5", "0.5")],
)
def test_quantities_are_numbers(text: str, value: str) -> None:
    assert quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "abc", "1.2.3", "2Gib", "v1", "1e", None])
def test_other_text_is_no_quantity(text: object) -> None:
    assert quantity(text) is None


scalars = st.text(max_size=5) | st.integers() | st.booleans()
manifests = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def defaulted(data: st.DataObject, desired: Any) -> Any:
    """The same as a server would store it: with more fields in every map."""
    if isinstance(desired, dict):
        more = data.draw(st.dictionaries(st.text(min_size=4, max_size=6), scalars, max_size=2))
        return {**more, **{key: defaulted(data, value) for key, value in desired.items()}}
    if isinstance(desired, list):
        return [defaulted(data, value) for value in desired]
    return desired


@given(manifests, st.data())
def test_defaults_that_the_server_adds_are_no_drift(desired: Any, data: st.DataObject) -> None:
    assert contains(defaulted(data, desired), desired)


@given(st.dictionaries(st.text(max_size=3), st.text(min_size=1, max_size=5), min_size=1), st.data())
def test_any_changed_text_is_drift(desired: dict[str, str], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(desired)))
    assert not contains({**desired, key: desired[key] + "!"}, desired)


@pytest.mark.parametrize(
    ("live", "desired", "found"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, ("a.c", 2, 3)),
        ({"a": {}}, {"a": {"b": {"c": 1}}}, ("a.b", None, {"c": 1})),
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 3}]}, ("a[1].b", 2, 3)),
        ({"a": [1]}, {"a": [1, 2]}, ("a", [1], [1, 2])),
        ({"a": 1}, {"a": {"b": 1}}, ("a", 1, {"b": 1})),
        (None, {"a": 1}, ("", None, {"a": 1})),
        ({"a": "500m", "b": 1}, {"a": "0.5"}, None),
    ],
)
def test_the_first_difference_is_found_with_both_values(live: Any, desired: Any, found: Any) -> None:
    assert difference(live, desired) == found


@given(manifests, manifests)
def test_there_is_a_difference_iff_the_live_object_lacks_a_field(live: Any, desired: Any) -> None:
    assert (difference(live, desired) is None) == contains(live, desired)
