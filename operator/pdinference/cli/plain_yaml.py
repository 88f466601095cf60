"""YAML that a person reads."""

from typing import Any

import yaml


class PlainDumper(yaml.CSafeDumper):
    """Writes every object out in full: anchors and aliases are legal YAML, and hard to read."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never use an alias."""
        return True
