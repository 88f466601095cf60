"""Values cannot change the structure of a template."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from pdinference.api.names import Role
from pdinference.manifests.templates import _ENVIRONMENT, fill, filled

# YAML reads keys of up to 1,024 characters, escapes included; the API allows no key that comes near.
KEYS = st.text(max_size=100)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


def rendered(value: Any) -> Any:
    return filled(_ENVIRONMENT.from_string("a: {{ value }}\nb: [{{ value }}]\n"), {"value": value})


@given(JSON)
def test_any_value_comes_back_as_it_was(value: Any) -> None:
    assert rendered(value) == {"a": value, "b": [value]}


@pytest.mark.parametrize(
    "text", ["\x7f", "\x85", "\u2028", "😀", "\ufeff", "{{ 1 }}", "a: b", "- x", "&a *a !!str", "#", "\0", "\x000"]
)
def test_text_that_yaml_treats_specially_is_quoted(text: str) -> None:
    assert rendered(text) == {"a": text, "b": [text]}


def test_a_key_may_be_a_value() -> None:
    template = _ENVIRONMENT.from_string("{% for key, value in map.items() %}\n{{ key }}: {{ value }}\n{% endfor %}")
    assert filled(template, {"map": {"<<": {"a": 1}, "b: c": True}}) == {"<<": {"a": 1}, "b: c": True}


def test_what_is_filled_in_may_be_changed_and_the_next_does_not_see_it() -> None:
    template, value = _ENVIRONMENT.from_string("a: {x: 1}\nb: {{ value }}\n"), {"y": [1]}
    first = filled(template, {"value": value})
    first["a"]["x"] = first["b"]["y"] = 2
    assert filled(template, {"value": value}) == {"a": {"x": 1}, "b": {"y": [1]}}
    assert value == {"y": [1]}


def test_tuples_and_enumerations_are_filled_in_as_json() -> None:
    assert rendered((1, Role.DECODE)) == {"a": [1, "decode"], "b": [[1, "decode"]]}
    assert type(rendered(Role.DECODE)["a"]) is str


def test_a_template_that_is_given_too_little_fails() -> None:
    with pytest.raises(UndefinedError, match="object"):
        fill("engine-service")
