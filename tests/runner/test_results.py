"""The output survives a crash of the runner at any byte, and is never mixed with that of another batch."""

import json
import os
import stat
from pathlib import Path

import pytest

from pdinference.engine.batch import ERRORS, OUTPUT
from pdinference.runner.lines import BatchRequestError, BatchRequestOutput, BatchResponseData
from pdinference.runner.results import BusyOutputError, ForeignOutputError, Results
from tests.runner.service import read_lines


def output(number: int, status: int = 200) -> BatchRequestOutput:
    response = BatchResponseData(status_code=status, request_id="r", body={"text": "ü\n"})
    return BatchRequestOutput(id=f"id-{number}", custom_id=f"request-{number}", response=response, error=None)


def unanswered(number: int) -> BatchRequestOutput:
    error = BatchRequestError(code="timeout", message="no answer")
    return BatchRequestOutput(id=f"id-{number}", custom_id=f"request-{number}", response=None, error=error)


def test_answers_and_failures_go_into_files_of_their_own(tmp_path: Path) -> None:
    results = Results(tmp_path / "deep" / "folder", "a")
    results.append([output(1), output(2, status=400), unanswered(3)])
    assert [line["custom_id"] for line in read_lines(tmp_path / "deep/folder" / OUTPUT)] == ["request-1"]
    assert [line["custom_id"] for line in read_lines(tmp_path / "deep/folder" / ERRORS)] == ["request-2", "request-3"]


def test_lines_are_on_disk_when_they_count_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node that loses power keeps is what was synchronized: here, each file as it was then."""
    kept: dict[int, bytes] = {}
    synchronize = os.fsync

    def noted(descriptor: int) -> None:
        synchronize(descriptor)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            kept[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    monkeypatch.setattr(os, "fsync", noted)
    results = Results(tmp_path, "a")
    for number in (1, 3):
        results.append([output(number), unanswered(number + 1)])
        for name in (OUTPUT, ERRORS):
            path = tmp_path / name
            assert kept[path.stat().st_ino] == path.read_bytes() != b""


def test_a_new_runner_knows_what_was_done(tmp_path: Path) -> None:
    first = Results(tmp_path, "a")
    first.append([output(1), unanswered(2)])
    first.close()
    second = Results(tmp_path, "a")
    assert (second.done.completed, second.done.failed) == (1, 1)
    assert "request-1" in second.done.ids
    assert "request-2" in second.done.ids


def test_wherever_a_line_was_torn_it_is_cut_off_and_what_follows_is_whole(tmp_path: Path) -> None:
    whole = output(1).as_line()
    torn = output(2).as_line()
    for length in range(len(torn)):
        folder = tmp_path / str(length)
        Results(folder, "a").close()
        (folder / OUTPUT).write_bytes(whole + torn[:length])
        results = Results(folder, "a")
        assert ("request-1" in results.done.ids, "request-2" in results.done.ids) == (True, False)
        results.append([output(2)])
        results.close()
        assert [line["custom_id"] for line in read_lines(folder / OUTPUT)] == ["request-1", "request-2"]


def test_the_answers_to_another_input_are_never_taken_for_this_ones(tmp_path: Path) -> None:
    first = Results(tmp_path, "a")
    first.append([output(1)])
    first.close()
    with pytest.raises(ForeignOutputError, match=r"spec\.output"):
        Results(tmp_path, "b")


@pytest.mark.parametrize("name", [OUTPUT, ERRORS])
def test_files_of_somebody_else_are_not_touched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ForeignOutputError):
        Results(tmp_path, "a")
    assert (tmp_path / name).read_text() == "mine"


def test_a_line_that_is_no_output_is_not_passed_over(tmp_path: Path) -> None:
    Results(tmp_path, "a").close()
    (tmp_path / OUTPUT).write_text(json.dumps({"no": "id"}) + "\n")
    with pytest.raises(ForeignOutputError, match=OUTPUT):
        Results(tmp_path, "a")


def test_a_runner_that_died_while_it_claimed_the_folder_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "batch.new").write_text("{")
    (tmp_path / OUTPUT).touch()
    assert Results(tmp_path, "a").done.completed == 0


def test_two_runners_do_not_write_at_once(tmp_path: Path) -> None:
    first = Results(tmp_path, "a")
    with pytest.raises(BusyOutputError):
        Results(tmp_path, "a")
    first.close()
    Results(tmp_path, "a").close()


def test_strikes_are_known_to_the_next_runner(tmp_path: Path) -> None:
    for _ in range(2):
        results = Results(tmp_path, "a")
        results.strike("one")
        results.close()
    with (tmp_path / "suspects.jsonl").open("ab") as file:
        file.write(b'{"custom_id":"tw')  # a runner that was killed
    assert Results(tmp_path, "a").done.strikes == {"one": 2}
