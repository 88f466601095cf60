"""The files of examples/gitops, and the schemas of the kinds in them: the CRDs of Argo CD and Flux, from Go modules."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from e2e.cluster.build import binary
from e2e.cluster.commands import run
from tests.conftest import REPOSITORY

EXAMPLES: Final = REPOSITORY / "examples" / "gitops"

Object = dict[str, Any]
Schema = dict[str, Any]


class Module(NamedTuple):
    """A Go module with CRDs.

    Attributes:
        path: Its path and version.
        digest: What Go's checksum database has for it.
        folder: Its folder of CRDs.
    """

    path: str
    digest: str
    folder: str


_FLUX: Final = "config/crd/bases"
MODULES: Final = (
    Module(
        "github.com/argoproj/argo-cd/v3@v3.4.13", "h1:kmnF4nE5SQ83OhtdX6DMmLSpH0eRIa1gNYdCLNHqB+A=", "manifests/crds"
    ),
    Module(
        "github.com/argoproj-labs/argocd-image-updater@v1.3.0",
        "h1:MFqUKURoh14wV1ansPGFnzLIvUGhzWOMU8L2x96041U=",
        "config/crd/bases",
    ),
    # The controllers of Flux 2.9.
    Module("github.com/fluxcd/kustomize-controller@v1.9.4", "h1:VBnBMhnemqnE5Zca2AoG2gC4472MoiTmk9rdqvLoMcY=", _FLUX),
    Module("github.com/fluxcd/source-controller@v1.9.4", "h1:psO6g4NTAMl3GD9gL8TMF3shM939XhTjFvlQXCK3pZ4=", _FLUX),
    Module("github.com/fluxcd/helm-controller@v1.6.3", "h1:MSiDP/s8xRSkO3g11vBiDStxfmJ5ZVdwDEpW7BSE/UA=", _FLUX),
    Module(
        "github.com/fluxcd/image-reflector-controller@v1.2.4", "h1:pBC8XOgLXt3VaTzp9k2fYpuR3FFEnZRZBkuSfnGxPhM=", _FLUX
    ),
    Module(
        "github.com/fluxcd/image-automation-controller@v1.2.4", "h1:uYtQq2kUb02q6fJE6zT/NdAPLTPLZUOIVp+JGFslW+M=", _FLUX
    ),
)


def documents(file: Path) -> list[Object]:
    """The objects of a YAML file."""
    return [item for item in yaml.safe_load_all(file.read_text(encoding="utf-8")) if item]


def named(file: Path, kind: str, name: str) -> Object:
    """An object of a YAML file."""
    (found,) = (item for item in documents(file) if (item["kind"], item["metadata"]["name"]) == (kind, name))
    return found


def kustomized(folder: str) -> list[Object]:
    """What Kustomize makes of a folder of the examples."""
    output = run([binary("kubectl"), "kustomize", EXAMPLES / folder])
    return [item for item in yaml.safe_load_all(output) if item]


@cache
def schemas() -> dict[tuple[str, str], Schema]:
    """The strict schema of each kind by apiVersion and kind. Go downloads what it does not have yet."""
    folders = [_downloaded(module) / module.folder for module in MODULES]
    return dict(found for folder in [*folders, REPOSITORY / "crds"] for found in _schemas(folder))


def _downloaded(module: Module) -> Path:
    answer = json.loads(run(["go", "mod", "download", "-json", module.path], timeout=600))
    if answer["Sum"] != module.digest:
        raise AssertionError(f"{module.path} is {answer['Sum']}, not {module.digest}")
    return Path(answer["Dir"])


def _schemas(folder: Path) -> Iterator[tuple[tuple[str, str], Schema]]:
    for file in sorted(folder.glob("*.yaml")):
        for crd in documents(file):
            if crd["kind"] != "CustomResourceDefinition":
                continue
            spec = crd["spec"]
            for version in spec["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                schema["properties"] |= {"metadata": {"type": "object"}}
                yield (f"{spec['group']}/{version['name']}", spec["names"]["kind"]), _strict(schema)


def _strict(schema: Schema) -> Schema:
    """The same schema in JSON Schema's words. The API server drops fields that it does not know; this refuses them."""
    known = {name: value for name, value in schema.items() if not name.startswith("x-") and name != "format"}
    if schema.get("x-kubernetes-int-or-string"):
        known["type"] = ["integer", "string"]
    if "properties" in schema:
        known["properties"] = {name: _strict(value) for name, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            known["additionalProperties"] = False
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            known[part] = _strict(schema[part])
    return known
