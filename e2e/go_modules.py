"""Files of Go modules, through the module proxy."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

_GATEWAY_API: Final = "sigs.k8s.io/gateway-api@v1.6.3"
_GATEWAY_API_SUM: Final = "h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc="
_GATEWAY_CRDS: Final = "config/crd/standard/gateway.networking.k8s.io"


def yaml_of(module: str, checksum: str, path: str) -> dict[str, Any]:
    """A YAML file of a module.

    Args:
        module: The module with its version.
        checksum: Its checksum, as in go.sum.
        path: Of the file in the module.
    """
    answer = subprocess.run(["go", "mod", "download", "-json", module], check=True, capture_output=True, text=True)
    found = json.loads(answer.stdout)
    if found["Sum"] != checksum:
        raise ValueError(f"{module} has the checksum {found['Sum']}, and {checksum} is expected.")
    content: dict[str, Any] = yaml.safe_load((Path(found["Dir"]) / path).read_text(encoding="utf-8"))
    return content


def module_folder(module: str, source: Path) -> Path:
    """Where the files of a module are, in the version that the go.mod in `source` pins."""
    command = ["go", "mod", "download", "-json", module]
    answer = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    return Path(json.loads(answer.stdout)["Dir"])


def gateway_api(plural: str) -> dict[str, Any]:
    """The Gateway API's own definition of a kind, of the standard channel."""
    return yaml_of(_GATEWAY_API, _GATEWAY_API_SUM, f"{_GATEWAY_CRDS}_{plural}.yaml")
