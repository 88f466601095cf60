"""Pictures of the documentation: drawn from what was printed, small, and without anything from other hosts."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from e2e.console import console, headline, recorded, say
from e2e.top_recording import draw
from pdinference.api.names import Role
from pdinference.cli.top.usage import EngineUse, Tiers
from tests.conftest import REPOSITORY

PICTURES = sorted((REPOSITORY / "docs" / "images").glob("*.svg"))


def drawn(picture: Path) -> str:
    """The text of a picture, with an element in a line."""
    root = ET.fromstring(picture.read_text(encoding="utf-8"))  # noqa: S314 - from this repository
    return "\n".join(root.itertext()).replace("\xa0", " ")


def test_a_run_is_printed_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "run.svg"
    width = console.width
    with recorded(picture, "make demo"):
        headline("A stage")
        say("a line with [brackets] & <angles>")
    say("afterwards")
    assert "a line with [brackets] & <angles>" in capsys.readouterr().out
    text = drawn(picture)
    assert "make demo" in text
    assert "A stage" in text
    assert "a line with [brackets] & <angles>" in text
    assert "afterwards" not in text
    assert (console.width, console.record) == (width, False)


def test_a_failed_run_leaves_the_picture(tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    picture.write_text("earlier", encoding="utf-8")

    def failing() -> None:
        with recorded(picture, "make demo"):
            say("begins")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert picture.read_text(encoding="utf-8") == "earlier"
    assert not console.record
    with recorded(picture, "make demo"):
        say("again")
    assert "begins" not in drawn(picture)


def test_looks_of_top_are_drawn_one_below_the_other(tmp_path: Path) -> None:
    engine = EngineUse(Role.DECODE, "d-0", kv_bytes=2**25, kv_used=0.5, tiers=Tiers(cpu_written=84e6))
    picture = tmp_path / "top.svg"
    draw([(0, [engine], {}), (12, [engine], {"d-0": [0, 0.5]})], picture)
    text = drawn(picture)
    assert text.index("after 0 s") < text.index("after 12 s")
    assert "16 of 32 MiB" in text
    assert "84 MB in, 0 out" in text


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_pictures_are_small_and_load_nothing(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert len(text) < 100_000
    assert re.findall(r"url\((?!#)|@import|href=", text) == []


def test_pictures_are_shown() -> None:
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [picture.name for picture in PICTURES if f"images/{picture.name})" not in shown] == []
    assert PICTURES
