"""Shell scripts: words, variables, arrays and arithmetic, without running anything."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.bounds import MAX_RAW_SPEC_BYTES
from pdinference.conversion import ConversionError
from pdinference.conversion.launch import Unresolved
from pdinference.conversion.script import Script


def commands(text: str) -> list[list[str]]:
    return [command.words for command in Script({}).commands(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vllm serve a/b --dtype half", [["vllm", "serve", "a/b", "--dtype", "half"]]),
        ("vllm serve a/b \\\n  --dtype half\n", [["vllm", "serve", "a/b", "--dtype", "half"]]),
        ("vllm serve a/b \\\r\n  --dtype half\r\n", [["vllm", "serve", "a/b", "--dtype", "half"]]),
        ('a \'{"x": "$y"}\'', [["a", '{"x": "$y"}']]),
        ('a "say \\"hi\\" \\$5"', [["a", 'say "hi" $5']]),
        ("a b#c # a comment\nd", [["a", "b#c"], ["d"]]),
        ("# vllm serve x\na", [["a"]]),
        ("a > log 2>&1 & b", [["a"], ["b"]]),
        ("a >log 2>/dev/null --port 1", [["a", "--port", "1"]]),
        ("cd /x && a; b | tee log", [["cd", "/x"], ["a"], ["b"], ["tee", "log"]]),
        ("A=1 B='x y' a ''", [["a", ""]]),
        ("a $'x\\ny'", [["a", "x\ny"]]),
        ("", []),
    ],
)
def test_words_are_those_of_a_shell(text: str, words: list[list[str]]) -> None:
    assert commands(text) == words


@pytest.mark.parametrize(
    "part",
    ["$MODEL", "${MODEL%b}", "$(cat model name)", "`cat model`", '"$MODEL"', "$(b $(c))", "$((A*2))", "${!A}", "<(b)"],
)
def test_what_is_not_known_is_kept_and_marked(part: str) -> None:
    ((first, replaced, last),) = commands(f"a x{part} --port")
    assert isinstance(replaced, Unresolved)
    assert not isinstance(first, Unresolved)
    assert (replaced, last) == (f"x{part}".replace('"', ""), "--port")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("A=2\nvllm $A", ["2"]),
        ("export A=2; vllm ${A}x", ["2x"]),
        ('A="--x 1 --y"\nvllm $A "$A"', ["--x", "1", "--y", "--x 1 --y"]),
        ('A=(--x 1\n  --y "2 3" # said\n)\nvllm "${A[@]}" ${#A[@]}', ["--x", "1", "--y", "2 3", "${#A[@]}"]),
        ('A=(--x 1); A+=(--y); A+=("--z=$B")\nvllm ${A[@]}', ["--x", "1", "--y", "--z=$B"]),
        ("A=--x; A+=' --y'; vllm $A", ["--x", "--y"]),
        ('A=(b c); vllm ${A[1]} ${A} ${A[*]} "${A[*]}"', ["c", "b", "b", "c", "b c"]),
        ('A=(); vllm x "${A[@]}"', ["x"]),
        ("vllm $((2*4)) $(( 16 / (3 + 1) - 1 )) $((7 % 4))", ["8", "3", "3"]),
        ("TP=2 PP=4; vllm $((TP * $PP)) $((${TP}+1))", ["8", "3"]),
        ("vllm ${A:-8192} ${A-b} ${A:+c}x", ["8192", "b", "${A:+c}x"]),
        ('A=; vllm ${A:-b} "${A-b}" "${A:+b}"', ["b", "", ""]),
        ("A=${A:-$B}; B=1; vllm ${A}", ["$B"]),
        (': "${A:=5}"\nvllm $A', ["5"]),
        ("M=Qwen/Qwen3-8B; vllm ${M##*/} ${M%%/*} ${M#Qwen/} ${M%-8B}", ["Qwen3-8B", "Qwen", "Qwen3-8B", "Qwen/Qwen3"]),
        ("if [ $X = p ]; then A=1; vllm $A; else A=2; fi", ["1"]),
        ("if [ $X = p ]; then A=1; else A=2; fi\nvllm $A", ["$A"]),
        ("case $X in p) A=1 ;; d) A=2; vllm $A ;; esac", ["2"]),
        ('A=1\n[ -n "$X" ] && A=2\nvllm $A', ["$A"]),
        ("A=1\nB=2 && A=3 &&\nvllm $A", ["3"]),
        ("A=(--x)\nif $B; then A+=(--y); elif $C; then A+=(--z); fi\nvllm ${A[@]}", ["--x", "--y", "--z"]),
        ('A="--x"\n[ $B ] && A="$A --y"\nvllm $A', ["--x", "--y"]),
        ("for A in 1 2; do vllm $A; done", ["$A"]),
        ("read A; vllm $A", ["$A"]),
        ('set -- b c; vllm $1 "$@"', ["b", "b", "c"]),
        ("unset A; A=1; unset A; vllm $A", ["$A"]),
        ("f() {\n  local A=$1\n  vllm $A\n}", ["$1"]),
        ("A=1 vllm $A", ["$A"]),
        ("vllm ${10}", ["${10}"]),
    ],
)
def test_variables_of_the_script_are_used(script: str, words: list[str]) -> None:
    (command,) = [command for command in commands(script) if command[0] == "vllm"]
    assert command[1:] == words
    assert {word for word in words if "$" in word} <= {word for word in command[1:] if isinstance(word, Unresolved)}


def test_only_exported_variables_reach_a_command() -> None:
    script = Script({"GIVEN": "1"})
    text = "A=1\nexport B=2\nC=3\nexport C\ndeclare -x D=4\nGIVEN=5\nE=6 vllm\n"
    (command,) = script.commands(text)
    assert command.environment == {"GIVEN": "5", "B": "2", "C": "3", "D": "4", "E": "6"}
    assert [remark.subject for remark in script.remarks()] == ["A"]


@pytest.mark.parametrize("text", ["a 'b", 'a "b', "a \\", "`a", "A=(b c", "a ${b", "a $(b"])
def test_what_is_never_closed_is_named_with_its_line(text: str) -> None:
    with pytest.raises(ConversionError, match="Line 2"):
        commands(f"a\n{text}")


def test_a_script_that_is_too_large_is_refused() -> None:
    with pytest.raises(ConversionError, match="more than"):
        commands("a" * (MAX_RAW_SPEC_BYTES + 1))
    with pytest.raises(ConversionError, match="words"):
        commands("a " * 20_000)
    with pytest.raises(ConversionError, match="nested too deeply"):
        commands("$(" * 10_000)


@pytest.mark.parametrize(
    "text",
    [
        "A=aaaaaaaa\n" + "A=$A$A\n" * 60 + "vllm $A",
        *(f"A=({words})\n" + 'A=("${A[@]}" "${A[@]}")\n' * 60 for words in ("a b", "'' ''")),
    ],
)
def test_variables_that_grow_without_end_are_refused(text: str) -> None:
    with pytest.raises(ConversionError, match="too much"):
        commands(text)


def test_an_array_may_be_appended_to_many_times() -> None:
    options = [f"--option-{number}={number}" for number in range(400)]
    appended = "".join(f"A+=({option} x)\n" for option in options)
    assert commands(f"A=()\n{appended}vllm serve ${{A[@]}}")[-1][2::2] == options


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)))
def test_words_that_python_quotes_come_back(words: list[str]) -> None:
    quoted = shlex.join(["a", *words])
    assert commands(quoted) == [["a", *words]]


@given(st.text(alphabet="aA $`'\"\\(){}<>|&;#\n=-+[@]*:%"))
def test_no_text_breaks_it(text: str) -> None:
    try:
        commands(text)
    except ConversionError:
        return
