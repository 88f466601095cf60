"""No value can break out of its place in a template."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from pdinference.manifests.templates import _ENVIRONMENT, fill

# YAML reads keys of up to 1,024 characters, escapes included; the API allows no key that comes near.
KEYS = st.text(max_size=100)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


def rendered(value: Any) -> Any:
    text = _ENVIRONMENT.from_string("a: {{ value }}\nb: [{{ value }}]\n").render(value=value)
    return yaml.load(text, Loader=yaml.CSafeLoader)


@given(JSON)
def test_any_value_comes_back_as_it_was(value: Any) -> None:
    assert rendered(value) == {"a": value, "b": [value]}


@pytest.mark.parametrize(
    "text", ["\x7f", "\x85", "\u2028", "😀", "\ufeff", "{{ 1 }}", "a: b", "- x", "&a *a !!str", "#"]
)
def test_text_that_yaml_treats_specially_is_quoted(text: str) -> None:
    assert rendered(text) == {"a": text, "b": [text]}


def test_a_template_that_is_given_too_little_fails() -> None:
    with pytest.raises(UndefinedError, match="object"):
        fill("parameter-service")
