"""Words of a shell script are split like by a shell, without execution or expansion."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.bounds import MAX_RAW_SPEC_BYTES
from pdinference.conversion.launch import ConversionError, Unresolved
from pdinference.conversion.shell import commands


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vllm serve a/b --port 8018", [["vllm", "serve", "a/b", "--port", "8018"]]),
        ("vllm serve a/b \\\n  --dtype half", [["vllm", "serve", "a/b", "--dtype", "half"]]),
        ("vllm serve a/b \\\r\n  --dtype half\r\n", [["vllm", "serve", "a/b", "--dtype", "half"]]),
        ('a \'{"x": "$y"}\'', [["a", '{"x": "$y"}']]),
        ('a "say \\"hi\\" \\$5"', [["a", 'say "hi" $5']]),
        ("a b#c # a comment\nd", [["a", "b#c"], ["d"]]),
        ("# vllm serve x\na", [["a"]]),
        ("a > log 2>&1 & b", [["a"], ["b"]]),
        ("a >log 2>/dev/null --port 1", [["a", "--port", "1"]]),
        ("cd /x && a; b | tee log", [["cd", "/x"], ["a"], ["b"], ["tee", "log"]]),
        ("A=1 B='x y' a ''", [["A=1", "B=x y", "a", ""]]),
        ("", []),
    ],
)
def test_words_are_those_of_a_shell(text: str, words: list[list[str]]) -> None:
    assert commands(text) == words


@pytest.mark.parametrize(
    "part", ["$MODEL", "${MODEL:-a b}", "$(cat model name)", "`cat model`", '"$MODEL"', '"${A[@]}"']
)
def test_what_a_shell_would_replace_is_kept_and_marked(part: str) -> None:
    ((first, replaced, last),) = commands(f"a x{part} --port")
    assert isinstance(replaced, Unresolved)
    assert not isinstance(first, Unresolved)
    assert (replaced, last) == (f"x{part}".replace('"', ""), "--port")


@pytest.mark.parametrize("text", ["a 'b", 'a "b', "a \\", "`a", "a $(b $(c)) d"])
def test_what_is_never_closed_is_named_with_its_line(text: str) -> None:
    with pytest.raises(ConversionError, match="Line 2"):
        commands(f"a\n{text}")


def test_a_script_that_is_too_large_is_refused() -> None:
    with pytest.raises(ConversionError, match="more than"):
        commands("a" * (MAX_RAW_SPEC_BYTES + 1))
    with pytest.raises(ConversionError, match="words"):
        commands("a " * 20_000)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)))
def test_words_that_python_quotes_come_back(words: list[str]) -> None:
    assert commands(shlex.join(words)) == ([words] if words else [])


@given(st.text(alphabet="a $`'\"\\(){}<>|&;#\n=-"))
def test_no_text_breaks_it(text: str) -> None:
    try:
        commands(text)
    except ConversionError:
        return
