"""Options become arguments, and no value can become another argument."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.engine.arguments import to_argv


@pytest.mark.parametrize(
    ("value", "argv"),
    [
        (True, ["--x"]),
        (False, ["--no-x"]),
        (4096, ["--x=4096"]),
        (0.85, ["--x=0.85"]),
        ("half", ["--x=half"]),
        ("--trust-remote-code", ["--x=--trust-remote-code"]),
        ("", ["--x="]),
        (["a", "b"], ["--x", "a", "b"]),
        ([], ["--x=[]"]),
        ([{"a": 1}, "b"], ["--x", '{"a":1}', "b"]),
        ({"b": 1, "a": [True, None]}, ['--x={"a":[true,null],"b":1}']),
    ],
)
def test_values_are_written_as_vllm_reads_them(value: object, argv: list[str]) -> None:
    assert to_argv({"x": value}) == argv


@given(st.text())
def test_text_stays_one_argument_whatever_it_holds(text: str) -> None:
    assert to_argv({"x": text}) == [f"--x={text}"]


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans(), min_size=1))
def test_objects_come_back_from_json(value: dict[str, object]) -> None:
    (argument,) = to_argv({"x": value})
    assert json.loads(argument.removeprefix("--x=")) == value
