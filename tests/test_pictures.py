"""Pictures of the documentation: drawn from what was printed, small, and without anything from other hosts."""

import re
import time
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from benchmarks.timed_vllm import Engine
from e2e.adaptive_recording import SHORT, Ways, look
from e2e.animation import Frame, save_animation
from e2e.console import console, headline, recorded, say
from e2e.repair_recording import Look, PodRow, frames
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


def test_frames_of_an_animation_follow_each_other_and_the_first_one_shows_without_it(tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    save_animation([Frame("one [b]<1>[/b]", 3), Frame("two\n[b]lines[/b]", 1)], picture, "a run")
    assert "one <1>twolines" in drawn(picture).replace("\n", "")
    text = picture.read_text(encoding="utf-8")
    assert re.findall(r"\.(run-\d) \{ visibility: (\w+); animation: (\S+) (\S+)", text) == [
        ("run-0", "visible", "run-0", "4s"),
        ("run-1", "hidden", "run-1", "4s"),
    ]
    assert re.findall(r"([\d.]+%) \{ visibility: (\w+) \}", text) == [
        *(("0%", "hidden"), ("0.000%", "visible"), ("75.000%", "hidden")),
        *(("0%", "hidden"), ("75.000%", "visible"), ("100.000%", "hidden")),
    ]


def test_a_repair_plays_in_a_minute_and_says_when_each_thing_was_seen(tmp_path: Path) -> None:
    def seen_at(seconds: float, status: str, *events: str) -> Look:
        pods = (PodRow("p-0", "True", "10.0.0.1", 1200 + seconds), PodRow("d", "True", "10.0.0.2", None))
        return Look(seconds, "A fault", pods, {"status": status, "reason": "Because"}, events, f"{seconds} answered")

    looks = [seen_at(0, "True"), seen_at(2, "True"), seen_at(60, "False"), seen_at(62, "False")]
    found = frames([*looks, seen_at(300, "True", "Repaired: p-0")])
    assert len(found) == 3  # what only counts on is left out for a time
    assert sum(frame.seconds for frame in found) == pytest.approx(60)
    save_animation(found, tmp_path / "repair.svg", "repair")
    text = drawn(tmp_path / "repair.svg")
    assert [part in text for part in ("  0 s  A fault", " 60 s  A fault", "300 s  A fault", "1,260", " 62 s")] == [
        *[True] * 4,
        False,
    ]
    assert text.index("KVTransfer False, Because") < text.index("Repaired: p-0")


def test_ways_are_shown_with_their_shares() -> None:
    ways = Ways([(time.monotonic(), SHORT, way) for way in ("decode", "decode", "decode", "parameter")])
    console = Console(width=100, record=True, file=StringIO())
    console.print(look(7, {SHORT: 4}, ways, {"P": Engine()}))
    (line,) = (line for line in console.export_text().splitlines() if line.startswith(SHORT.title))
    assert line.split()[-4:] == ["█████████", "3", "███", "1"]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_pictures_are_small_and_load_nothing(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert len(text) < (400_000 if "@keyframes" in text else 100_000)
    assert re.findall(r"url\((?!#)|@import|href=", text) == []


def test_pictures_are_shown() -> None:
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [picture.name for picture in PICTURES if f"images/{picture.name})" not in shown] == []
    assert PICTURES
