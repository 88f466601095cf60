"""The distribution of integration tests to processes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ports
from tests.shards import COUNT, FOLDER, recorded, split, status

FILES = [path.name for path in FOLDER.glob("test_*.py")]


@given(st.permutations(FILES))
def test_each_file_is_in_one_shard_whatever_the_order(files: list[str]) -> None:
    shards = split(recorded(), files)
    assert sorted(file for shard in shards for file in shard) == sorted(FILES)
    assert shards == split(recorded(), FILES)


def test_the_recorded_seconds_give_shards_of_about_the_same_length() -> None:
    seconds = recorded()
    assert {*seconds} <= {*FILES}
    sums = [sum(seconds[file] for file in shard) for shard in split(seconds, seconds)]
    assert max(sums) - min(sums) <= max(seconds.values()) / 2


def test_files_without_a_record_count_as_average_ones() -> None:
    assert split({"a": 30, "b": 10, "c": 20}, ["a", "b", "new", "newer"], 2) == [["a", "b"], ["new", "newer"]]
    assert split({}, ["a", "b", "c"], 2) == [["a", "c"], ["b"]]


def test_one_failure_fails_all_and_an_empty_shard_fails_none() -> None:
    assert [status(codes) for codes in ((0, 0), (0, 5), (5, 5), (5, 1), (0, -2))] == [0, 0, 5, 1, -2]


def test_no_two_shards_and_no_other_test_choose_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    for number in range(COUNT + 1):  # 0: a process that is no shard
        monkeypatch.setenv(ports.SLICE, str(number))
        chosen.append({ports.free_port() for _ in range(20)})
        assert chosen[-1] <= {*ports.slice_of(number)}
        assert len(chosen[-1]) == 20, "nothing has bound the ports yet"
    slices = [{*ports.slice_of(number)} for number in range(COUNT + 1)]
    assert len(set.union(*slices)) == sum(map(len, slices))
