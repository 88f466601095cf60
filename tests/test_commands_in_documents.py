"""Commands in documents exist, with the options that are shown; recipes list every example."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pdinference.cli import main
from pdinference.cli.lazy_group import subcommands
from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"
OTHERS = ("README.md", "CONTRIBUTING.md", "charts/pdinference-operator/README.md", "benchmarks/README.md")
PAGES = [*(REPOSITORY / name for name in OTHERS), *sorted(DOCS.glob("*.md"))]
PROGRAM = r"(?:pdinference|kubectl pdi|make)"
CODE = re.compile(
    rf"^ {{4,}}(?:\$ )?({PROGRAM} .*)$|^(?:\$ )?({PROGRAM} .*)$|`({PROGRAM} [^`]+)`",
    re.MULTILINE,
)
END = re.compile(r"\s#\s|\||>|&&|;|\$\(|<|\n")
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def commands(page: Path) -> Iterator[str]:
    """Each command that the page shows in code, up to a pipe or the like."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for groups in CODE.findall(text):
        yield END.split(next(filter(None, groups)))[0].strip()


def wrong(words: list[str]) -> str:
    """What of a command of ours does not exist; empty if all does."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and (part := subcommands(command).get(words[0])):
        command, words = part, words[1:]
    if isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        return words[0]
    ours = words[: words.index("--")] if "--" in words else words
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    used = (word.partition("=")[0] for word in ours if re.match(r"--?[a-z]", word))
    return " ".join(option for option in used if option not in known | {"--help", "--version"})


def test_commands_are_found() -> None:
    found = [command for page in PAGES for command in commands(page)]
    assert len(found) > 100
    assert sum(command.startswith("kubectl pdi ") for command in found) > 30


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_of_a_page_exist(page: Path) -> None:
    found = {}
    for text in commands(page):
        program, *words = shlex.split(text.removeprefix("kubectl "))
        if program == "make":
            found[text] = "" if not words or words[0] in TARGETS else words[0]
        else:
            found[text] = wrong(words)
    assert {text: problem for text, problem in found.items() if problem} == {}


def test_recipes_list_every_example() -> None:
    listed = re.findall(r"\]\(\.\./examples/([\w-]+\.yaml)\)", (DOCS / "recipes.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.name for path in (REPOSITORY / "examples").glob("*.yaml"))
