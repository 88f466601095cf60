"""Files of Go modules, through the module proxy."""

import json
import subprocess
from pathlib import Path

import yaml

from pdinference.cluster.client import Json


def yaml_of(module: str, checksum: str, path: str) -> Json:
    """A YAML file of a module.

    Args:
        module: The module with its version.
        checksum: Its checksum, as in go.sum.
        path: Of the file in the module.
    """
    answer = subprocess.run(["go", "mod", "download", "-json", module], check=True, capture_output=True, text=True)
    found = json.loads(answer.stdout)
    assert found["Sum"] == checksum
    content: Json = yaml.safe_load((Path(found["Dir"]) / path).read_text(encoding="utf-8"))
    return content
