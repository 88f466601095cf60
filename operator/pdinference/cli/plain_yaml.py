"""Writes readable YAML."""

from typing import Any

import yaml


class PlainDumper(yaml.CSafeDumper):
    """Writes YAML without anchors and aliases, which are hard to read."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never use an alias."""
        return True
