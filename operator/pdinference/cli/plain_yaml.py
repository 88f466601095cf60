"""Writes readable YAML."""

from typing import Any

import yaml


class PlainDumper(yaml.CSafeDumper):
    """Writes YAML without anchors and aliases, which are hard to read."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never use an alias."""
        return True


class BlockDumper(PlainDumper):
    """Writes texts of several lines, such as programs, as they are."""


def _text(dumper: BlockDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


BlockDumper.add_representer(str, _text)
