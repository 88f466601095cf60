"""YAML that people read."""

import pytest
import yaml

from pdinference.cli.plain_yaml import BlockDumper, PlainDumper


def test_a_program_is_written_as_it_is() -> None:
    text = 'print("a")\n\nprint("b: #")\n'
    assert yaml.dump({"data": text}, Dumper=BlockDumper) == 'data: |\n  print("a")\n\n  print("b: #")\n'


@pytest.mark.parametrize(
    "text", ["a\nb", "a \nb\n", "\n", " a\n b\n", "a\n\n\n", "\ta\n", "a\0\n", "a", "", "1", "a: b"]
)
def test_every_text_is_read_as_it_was(text: str) -> None:
    assert yaml.safe_load(yaml.dump([text], Dumper=BlockDumper)) == [text]


def test_there_are_no_aliases() -> None:
    part = {"a": [1]}
    for dumper in (PlainDumper, BlockDumper):
        assert "*" not in yaml.dump([part, part], Dumper=dumper)
