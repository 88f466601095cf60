"""What a terminal of 80 columns shows of tables: whole names and numbers."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.table import Table

from pdinference.cli import main
from pdinference.cli.explain.explanation import Explanation
from pdinference.cli.explain.steps import Step
from pdinference.cli.explain.text import print_explanation
from pdinference.cli.narrow import fitted
from tests.cli.served_cluster import ServedCluster, resource
from tests.cli.terminal import as_terminal, on_terminal
from tests.conftest import REPOSITORY

LLAMA = REPOSITORY / "examples" / "llama-8b.yaml"
WIDTH = 80
NAME = "llama-3-1-8b-instruct-of-team-a-decode-ctfbcsls"


def printed(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> Iterator[str]:
    as_terminal(monkeypatch, width=WIDTH)
    found = CliRunner().invoke(main, [str(word) for word in words])
    assert found.exit_code == 0, found.output
    return (line.rstrip() for line in click.unstyle(found.stdout).splitlines())


def test_a_plan_is_printed_with_whole_fields_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = list(printed(monkeypatch, "plan", "-f", LLAMA))
    assert max(map(len, lines)) <= WIDTH
    assert not any("…" in line for line in lines)
    row = lines.index("parallelism.tensor: 2")
    assert lines[row + 1].startswith("  weights: 7.51 GiB; KV cache: ")


def test_an_advice_has_each_arrangement_in_some_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    load = ("--rate", "5", "--prompt-tokens", "1000", "--answer-tokens", "50", "--seconds", "20", "--ttft", "500ms")
    lines = list(printed(monkeypatch, "advise", "-f", LLAMA, "--jobs", "1", "--gpus", "1xH200", *load))
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


async def test_the_status_of_resources_with_long_names_has_whole_names_and_reasons(tmp_path: Path) -> None:
    cluster = ServedCluster()
    cluster.resources = [resource(NAME, "ctfbcsls"), resource("llama")]
    async with cluster.running(tmp_path):
        lines = (await cluster.run_on_terminal(WIDTH, "status")).splitlines()
        wide = (await cluster.run_on_terminal(120, "status")).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert lines[0] == NAME
    assert lines[1].startswith("  READY: Unknown; REVISION: ctfbcsls; SERVING: ctfbcsls; P: 0/0; D: 0/0; ")
    assert wide[0].split() == ["NAME", "READY", "REVISION", "SERVING", "P", "D", "ROUTER", "STATE"]
    assert len(wide) == 3


async def test_problems_of_a_file_are_wrapped_at_words_and_indented(tmp_path: Path) -> None:
    file = tmp_path / "llama.yaml"
    mode = "a mode that makes the message longer than a line of the terminal"
    file.write_text(f"{LLAMA.read_text(encoding='utf-8')}\n  mode: {mode}\n")
    lines = (await on_terminal(WIDTH, "validate", "-f", str(file))).splitlines()
    assert max(len(line) for line in lines if str(file) not in line) <= WIDTH
    first = next(number for number, line in enumerate(lines) if line.startswith("  spec.mode: "))
    assert lines[first + 1].startswith("    ")
    assert 'or "Aggregated", not "a mode that makes the message longer than' in " ".join(map(str.strip, lines[first:]))


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


@pytest.mark.parametrize("width", [60, 66, 70, 200])
def test_a_table_that_is_drawn_is_whole(width: int) -> None:
    made = Table()
    made.add_column("arrangement", overflow="fold", min_width=24)
    made.add_column("TTFT", no_wrap=True)
    made.add_column("limit", overflow="fold")
    made.add_row("split: 1 P TP 1 + 1 D TP 2, NVLink", "19,903 / 37 s", "prompts between tokens")
    console = Console(width=width)
    with console.capture() as captured:
        console.print(fitted(made, console))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert {line[-1] for line in lines} == set("┓┃┩│┘")
    assert max(map(len, lines)) <= width
