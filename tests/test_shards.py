"""The distribution of integration tests to processes."""

from hypothesis import given
from hypothesis import strategies as st

from tests.shards import FOLDER, recorded, split, status

FILES = [path.name for path in FOLDER.glob("test_*.py")]


@given(st.permutations(FILES))
def test_each_file_is_in_one_shard_whatever_the_order(files: list[str]) -> None:
    shards = split(recorded(), files)
    assert sorted(file for shard in shards for file in shard) == sorted(FILES)
    assert shards == split(recorded(), FILES)


def test_the_recorded_seconds_give_shards_of_about_the_same_length() -> None:
    seconds = recorded()
    sums = [sum(seconds[file] for file in shard) for shard in split(seconds, seconds)]
    assert max(sums) - min(sums) <= max(seconds.values()) / 2


def test_files_without_a_record_count_as_average_ones() -> None:
    assert split({"a": 30, "b": 10, "c": 20}, ["a", "b", "new", "newer"], 2) == [["a", "b"], ["new", "newer"]]
    assert split({}, ["a", "b", "c"], 2) == [["a", "c"], ["b"]]


def test_one_failure_fails_all_and_an_empty_shard_fails_none() -> None:
    assert [status(codes) for codes in ((0, 0), (0, 5), (5, 5), (5, 1), (0, -2))] == [0, 0, 5, 1, -2]
