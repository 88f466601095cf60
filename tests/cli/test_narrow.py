"""What a terminal of 80 columns shows of tables: whole names and numbers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.table import Table

from pdinference.cli import main
from pdinference.cli.explain.explanation import Explanation
from pdinference.cli.explain.steps import Step
from pdinference.cli.explain.text import print_explanation
from pdinference.cli.narrow import fitted
from tests.conftest import REPOSITORY

LLAMA = REPOSITORY / "examples" / "llama-8b.yaml"
WIDTH = 80
NAME = "llama-3-1-8b-instruct-of-team-a-decode-ctfbcsls"


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdinference.cli.plan.table.plan_console", lambda: Console(highlight=False, width=WIDTH))


def printed(*words: str | Path) -> Iterator[str]:
    found = CliRunner().invoke(main, [str(word) for word in words])
    assert found.exit_code == 0, found.output
    return (line.rstrip() for line in found.stdout.splitlines())


def test_a_plan_is_printed_with_whole_fields_and_numbers() -> None:
    lines = list(printed("plan", "-f", LLAMA))
    assert max(map(len, lines)) <= WIDTH
    assert not any("…" in line for line in lines)
    row = lines.index("parallelism.tensor: 2")
    assert lines[row + 1].startswith("  weights: 7.48 GiB; KV cache: ")


def test_an_advice_has_each_arrangement_in_some_lines() -> None:
    load = ("--rate", "5", "--prompt-tokens", "1000", "--answer-tokens", "50", "--seconds", "20", "--ttft", "500ms")
    lines = list(printed("advise", "-f", LLAMA, "--jobs", "1", "--gpus", "1xH200", *load))
    assert max(map(len, lines)) <= WIDTH
    row = lines.index("unsplit: 1 x TP 1")
    assert lines[row + 1].startswith("  GPUs: 1; TTFT p50 / p99: ")


def explained(*lines: str, writes: tuple[Step, ...] = ()) -> list[str]:
    explanation = Explanation("ns", "llama", 1, 1, target="b", serving="a", look_again=lines, writes=writes)
    console = Console(width=WIDTH)
    with console.capture() as captured:
        print_explanation(explanation, console)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_long_name_leaves_its_reason_a_line_of_its_own() -> None:
    lines = explained(writes=(Step(1, "scale", "Deployment", NAME, "3 -> 1 replica"),))
    row = next(number for number, line in enumerate(lines) if NAME in line)
    assert lines[row + 1].strip() == "3 -> 1 replica"
    assert len(lines[row]) <= WIDTH


def test_further_lines_of_a_list_are_indented() -> None:
    first, further = explained("it looks again " * 6)[-2:]
    assert (first[:12], further) == ("  - it looks", "    it looks again")


def table() -> Table:
    made = Table(title="pods")
    made.add_column("pod", overflow="fold")
    made.add_column("KV\ntokens", no_wrap=True)
    made.add_row("llama-decode-0", "33,920", style="bold")
    return made


@pytest.mark.parametrize(("width", "fits"), [(27, True), (26, False)])
def test_a_table_is_drawn_if_all_its_words_have_room(width: int, fits: bool) -> None:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(fitted(table(), console))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    if fits:
        assert "│ llama-decode-0 │ 33,920 │" in lines
    else:
        assert lines == ["pods", "llama-decode-0", "  KV tokens: 33,920", ""]
