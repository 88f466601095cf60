"""Pins container images: writes the digest that a registry has for each tag beside the tag.

    uv run python -m e2e.digests           # or `make digests`, which writes the generated files anew, too

A tag can be moved; a digest names one content for ever. The tag stays for people, and for the next run: to take another
version, change the tag and run this again. Registries are asked by crane, which is built from its Go module and finds
credentials where docker and podman keep theirs.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from e2e import programs
from e2e.cluster import build
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError

_REPOSITORY: Final = Path(__file__).parent.parent
PINNED: Final[Mapping[str, Sequence[Path]]] = {
    "docker.io/library/python": sorted(_REPOSITORY.glob("images/*/Dockerfile")),
    "docker.io/vllm/vllm-openai": [_REPOSITORY / "operator/pdinference/api/v1alpha1/engine.py"],
}
"""The images that are taken from others, each with the files that name it."""
_DIGEST: Final = r"sha256:[0-9a-f]{64}"


def update(pinned: Mapping[str, Sequence[Path]]) -> dict[str, str]:
    """Write the digest of each image's tag into the files that name it; none is written unless all are known.

    Args:
        pinned: Repositories without a tag, each with the files that name it with one.

    Returns:
        The digests by `repository:tag`.

    Raises:
        ClusterError: A registry did not answer, or a file names no image of the repository.
    """
    build.prepare(["crane"])
    texts = {file: file.read_text(encoding="utf-8") for files in pinned.values() for file in files}
    digests: dict[str, str] = {}

    def with_digest(found: re.Match[str]) -> str:
        return f"{found[1]}@{digests[found[1]]}"

    for repository, files in pinned.items():
        pattern = re.compile(rf"({re.escape(repository)}:[\w][\w.-]*)(@{_DIGEST})?")
        for file in files:
            tagged = {found[1] for found in pattern.finditer(texts[file])}
            if not tagged:
                raise ClusterError(f"{file} names no image {repository}:TAG.")
            digests |= {reference: _digest(reference) for reference in tagged - digests.keys()}
            texts[file] = pattern.sub(with_digest, texts[file])
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
    return digests


def _digest(reference: str) -> str:
    """The digest of the index of all platforms, where an image has one."""
    answer = run([build.binary("crane"), "digest", reference], timeout=60).strip()
    if not re.fullmatch(_DIGEST, answer):
        raise ClusterError(f"The registry's digest of {reference} is not a SHA-256 digest: {answer!r}.")
    return answer


def main() -> None:
    """Pin the images of this repository."""
    programs.restrict()
    try:
        for reference, digest in update(PINNED).items():
            click.echo(f"{reference}@{digest}")
    except ClusterError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
