"""Writes readable YAML."""

import sys
from collections.abc import Iterable
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


def print_yaml(objects: Iterable[Any], **style: Any) -> None:
    """Print documents.

    Args:
        objects: The documents.
        style: Arguments of `yaml.dump_all` that differ.
    """
    style = {"Dumper": PlainDumper, "default_flow_style": False, "width": 120, **style}
    yaml.dump_all(objects, sys.stdout, sort_keys=False, explicit_start=True, **style)
