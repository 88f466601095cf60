"""Where the artifacts of a release come from: labels of its images, and SLSA's provenance of each artifact.

docs/supply-chain.md says what the provenance means. What it attests, the digest in the registry, is added by the
command that signs it.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from e2e import charts, images
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError

BUILD_TYPE: Final = "blob/main/docs/supply-chain.md#provenance"
"""Below the project's page: the description of what is in the provenance."""
BY_HAND: Final = "blob/main/docs/make-a-release.md#by-hand-or-for-a-registry-of-your-own"
"""The same: who builds where no workflow does."""
_REMOTE: Final = re.compile(
    r"(?:(?:https|ssh)://(?:[^@/]*@)?|[^@/:]+@)(?P<host>[\w.-]+)(?::\d+(?=/))?[/:](?P<path>[\w./-]+?)(?:\.git)?/?"
)
_DIRTY: Final = "-dirty"

Json = dict[str, Any]


def labels(repository: Path = images.REPOSITORY) -> dict[str, str]:
    """Labels for the commit of a checkout, and where it comes from; those that are not known are left out.

    Args:
        repository: The checkout.
    """
    revision, source = _origin(repository)
    found = {"revision": revision, "source": source}
    return {f"org.opencontainers.image.{name}": value for name, value in found.items() if value}


def predicate(
    target: str,
    started: datetime,
    *,
    built: Sequence[images.Image] = (),
    repository: Path = images.REPOSITORY,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """The predicate of SLSA's provenance v1, as JSON.

    Args:
        target: The reference that the artifact gets in the registry.
        started: When the command that makes the release began.
        built: The image, which has been built, or that of each architecture in a list of images. Default: the artifact
            is made of files of the repository alone.
        repository: The checkout.
        environment: Variables, of which those of GitHub's workflows are read.
    """
    home = charts.metadata()["home"]
    parameters: Json = {"command": "make release", "artifact": target, "version": charts.version()}
    if built:
        parameters["architectures"] = [image.architecture for image in built]
    document = {
        "buildDefinition": {
            "buildType": f"{home}/{BUILD_TYPE}",
            "externalParameters": parameters,
            "resolvedDependencies": [*_source(repository), *map(_base, built), *_pins(built)],
        },
        "runDetails": {"builder": {"id": _builder(home, environment)}, "metadata": _run(started, environment)},
    }
    return json.dumps(document, indent=2) + "\n"


def _source(repository: Path) -> list[Json]:
    """The commit; a checkout with changes says so, and files without a checkout are not known."""
    revision, source = _origin(repository)
    if not revision:
        return []
    known: Json = {"name": "source", "digest": {"gitCommit": revision.removesuffix(_DIRTY)}}
    if source:
        known["uri"] = f"git+{source}"
    if revision.endswith(_DIRTY):
        known["annotations"] = {"dirty": True}
    return [known]


def _base(image: images.Image) -> Json:
    """The base, whose packages have no pins."""
    kind, _, digest = images.base_layer(image).partition(":")
    return {
        "name": "first layer: packages of Debian",
        "digest": {kind: digest},
        "annotations": {"architecture": image.architecture},
    }


def _pins(built: Sequence[images.Image]) -> list[Json]:
    """The files with the pins of all other packages, each once: they have the pins for all architectures."""
    files = {file: str(file.relative_to(image.repository)) for image in built for file in images.pins(image)}
    return [{"name": name, "digest": {"sha256": _sha256(file)}} for file, name in files.items()]


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _builder(home: str, environment: Mapping[str, str]) -> str:
    """The workflow at its tag; else the page on releases by hand."""
    if workflow := environment.get("GITHUB_WORKFLOW_REF"):
        return f"{environment['GITHUB_SERVER_URL']}/{workflow}"
    return f"{home}/{BY_HAND}"


def _run(started: datetime, environment: Mapping[str, str]) -> Json:
    times = {"startedOn": _time(started), "finishedOn": _time(datetime.now(UTC))}
    if "GITHUB_RUN_ID" not in environment:
        return times
    server, repository, number, attempt = (
        environment[f"GITHUB_{name}"] for name in ("SERVER_URL", "REPOSITORY", "RUN_ID", "RUN_ATTEMPT")
    )
    return {"invocationId": f"{server}/{repository}/actions/runs/{number}/attempts/{attempt}", **times}


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _origin(repository: Path) -> tuple[str, str]:
    """Commit and page; empty where they are not known."""
    revision = _git(repository, "describe", "--always", "--abbrev=40", "--exclude=*", f"--dirty={_DIRTY}")
    return revision, _page(_git(repository, "remote", "get-url", "origin")) if revision else ""


def _git(repository: Path, *words: str) -> str:
    """What git prints; nothing without git, or outside of a checkout of its own."""
    try:
        if not (repository / ".git").exists():
            return ""
        # In a container, the checkout may belong to another user.
        return run(["git", "-C", repository, "-c", f"safe.directory={repository}", *words]).strip()
    except ClusterError:
        return ""


def _page(remote: str) -> str:
    """The page of a remote, without the credentials that its URL may have; empty for a folder."""
    found = _REMOTE.fullmatch(remote)
    return f"https://{found['host']}/{found['path']}" if found else ""
