"""Publishes a release: images and chart to an OCI registry, and beside the chart's files those that belong to them.

    uv run python -m e2e.publish ghcr.io/team --sign 'cosign sign --yes --key cosign.key'     # or `make release`

Into dist/release/ go the files of e2e/release.py for this registry, `digests.yaml` (what was pushed), bills of
materials, the notes from the CHANGELOG, and checksums. Log in to the registry first: buildah and Helm find credentials
where docker and podman keep theirs. Nothing is pushed unless all files can be made. What is in the registry is never
replaced.
"""

import re
import shlex
import sys
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import yaml

from e2e import images, release, sbom, wheels
from e2e.cluster import build
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError

CHANGELOG: Final = images.REPOSITORY / "CHANGELOG.md"
CHARTS: Final = "charts"
"""Below it is the chart in a registry."""
_PUSH_SECONDS: Final = 3600
_REMOTE: Final = re.compile(
    r"(?:(?:https|ssh)://(?:[^@/]*@)?|[^@/:]+@)(?P<host>[\w.-]+)(?::\d+(?=/))?[/:](?P<path>[\w./-]+?)(?:\.git)?/?"
)


def publish(
    registry: str,
    folder: Path,
    *,
    names: Sequence[str] = tuple(images.IMAGES),
    changelog: Path = CHANGELOG,
    sign: Sequence[str] = (),
    architectures: Sequence[str] = (),
) -> dict[str, str]:
    """Write the files of a release, push its images and its chart, and sign them.

    Args:
        registry: Host and path, such as ghcr.io/team. One on this machine is spoken to without TLS.
        folder: For the files; removed first if it exists.
        names: The images, folders below images/.
        changelog: Has the notes of the version.
        sign: The start of a command that signs the REPOSITORY@DIGEST at its end; none without it.
        architectures: Those that an image is published for, if its packages are pinned for them: a reference then names
            a list of images. Default: an image for this machine's.

    Returns:
        The digest of each reference that was pushed.

    Raises:
        ReleaseError: Something is missing, or the registry has this version.
        ImageError: An image can't be built or pushed.
        SbomError: A bill of materials is not valid.
        ClusterError: Helm, crane or the signing command failed.
    """
    number = release.version()
    chart = f"{registry}/{CHARTS}/{release.CHART.name}:{number}"
    targets = {f"{registry}/{name}:{images.IMAGES[name].tag}": name for name in names}
    there = {each: digest for each in [*targets, chart] if (digest := _digest(each))}
    _require_new(number, list(there))
    packed = _write_files(registry, folder, changelog, names)
    _require_images(packed, registry, targets)
    built = {name: _built(name, architectures) for name in names}
    digests = {target: there.get(target) or _push_images(built[name], target) for target, name in targets.items()}
    digests[chart] = _push_chart(packed, chart)
    (folder / "digests.yaml").write_text(yaml.safe_dump(digests), encoding="utf-8")
    release.write_checksums(folder)
    sign_all(sign, {target: digest for target, digest in digests.items() if target not in there})
    return digests


def _write_files(registry: str, folder: Path, changelog: Path, names: Sequence[str]) -> Path:
    """Write what needs no push, and return the packed chart."""
    number = release.version()
    text = release.notes(number, changelog.read_text(encoding="utf-8"))
    release.write_all(folder, registry)
    wheels.build(folder)
    (folder / "notes.md").write_text(text, encoding="utf-8")
    sbom.write_all(folder, names)
    return folder / f"{release.CHART.name}-{number}.tgz"


def _require_new(number: str, there: Sequence[str]) -> None:
    """Images of vLLM have vLLM's version, and several releases may share one."""
    released = [each for each in there if each.endswith(f":{number}")]
    if released:
        raise release.ReleaseError(
            f"The registry has {', '.join(released)}. A released version is never replaced: run `make version V=...`."
        )


def _require_images(packed: Path, registry: str, pushed: Container[str]) -> None:
    """Router and model images have tags of their own, so a new registry lacks those of an earlier release."""
    missing = [each for each in release.chart_images(packed) if each not in pushed and _digest(each) is None]
    if missing:
        source = "EARLIER_REGISTRY" if registry == release.REGISTRY else release.REGISTRY
        copies = (f"crane copy {source}{each.removeprefix(registry)} {each}" for each in missing)
        raise release.ReleaseError(
            f"The chart names {', '.join(missing)}, which the registry does not have and this release does not push. "
            "Copy from a registry that has it, then repeat:" + "".join(f"\n  {copy}" for copy in copies)
        )


def _built(name: str, architectures: Sequence[str]) -> dict[str, str]:
    """Build an image for each architecture that it has, without any for this machine, and return the references."""
    own = [each for each in architectures if each in images.IMAGES[name].architectures]
    if not own:
        return {"": images.build_images([name])[name].reference}
    return {each: images.build_images([name], each)[name].reference for each in own}


def _push_images(built: Mapping[str, str], target: str) -> str:
    """Push an image, or a list of images for several architectures, and return the digest."""
    if len(built) == 1:
        (reference,) = built.values()
        return _push_image(reference, target)
    parts = {f"{target}-{architecture}": reference for architecture, reference in built.items()}
    digests = {part: _push_image(reference, part) for part, reference in parts.items()}
    manifests = [f"--manifest={target.rpartition(':')[0]}@{digest}" for digest in digests.values()]
    run([*_crane(target, "index"), "append", *manifests, f"--tag={target}"], timeout=_PUSH_SECONDS)
    digest = _digest(target)
    if digest is None:
        raise release.ReleaseError(f"The registry does not have {target} after crane has pushed it.")
    return digest


def _push_image(reference: str, target: str) -> str:
    """Push an image with the labels of this checkout, and return its digest.

    The labels are set in the registry: as part of the build, each commit would build all layers anew.
    """
    digest = images.push(reference, target, tls=_tls(target))
    labels = [f"--label={name}={value}" for name, value in provenance().items()]
    if not labels:
        return digest
    run([*_crane(target, "mutate"), *labels, f"--tag={target}", target], timeout=_PUSH_SECONDS)
    return _digest(target) or digest


def provenance(repository: Path = images.REPOSITORY) -> dict[str, str]:
    """Labels for the commit of a checkout, and where it comes from; those that are not known are left out.

    Args:
        repository: The checkout.
    """
    revision = _git(repository, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")
    source = _page(_git(repository, "remote", "get-url", "origin")) if revision else ""
    labels = {"revision": revision, "source": source}
    return {f"org.opencontainers.image.{name}": value for name, value in labels.items() if value}


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


def _push_chart(packed: Path, chart: str) -> str:
    """Push the chart and return its digest."""
    plain = [] if _tls(chart) else ["--plain-http"]
    run([build.binary("helm"), "push", packed, f"oci://{chart.rpartition('/')[0]}", *plain], timeout=_PUSH_SECONDS)
    digest = _digest(chart)
    if digest is None:
        raise release.ReleaseError(f"The registry does not have {chart} after Helm has pushed it.")
    return digest


def _digest(reference: str) -> str | None:
    """What the registry has; None without it."""
    try:
        return run([*_crane(reference, "digest"), reference]).strip()
    except ClusterError as error:
        if "MANIFEST_UNKNOWN" in str(error) or "NAME_UNKNOWN" in str(error):
            return None
        raise


def _crane(reference: str, word: str) -> list[str | Path]:
    return [build.binary("crane"), word, *([] if _tls(reference) else ["--insecure"])]


def sign_all(command: Sequence[str], digests: Mapping[str, str]) -> None:
    """Sign what was pushed.

    Args:
        command: The start of the command that signs the REPOSITORY@DIGEST at its end; nothing is signed without it.
        digests: The digest of each reference.

    Raises:
        ReleaseError: The command failed. A repeated release would be refused, so the message has the commands that are
            left.
    """
    commands = [[*command, f"{name.rpartition(':')[0]}@{digest}"] for name, digest in digests.items() if command]
    for number, words in enumerate(commands):
        try:
            run(words, timeout=_PUSH_SECONDS)
        except ClusterError as error:
            left = "".join(f"\n  {shlex.join(each)}" for each in commands[number:])
            raise release.ReleaseError(
                f"{error}\nAll is pushed, but not all is signed. Correct the cause, then sign the rest:{left}"
            ) from error


def _tls(reference: str) -> bool:
    return not reference.startswith(("localhost:", "127.0.0.1:"))


def lines(digests: Mapping[str, str]) -> str:
    """What was pushed, to be read."""
    return "\n".join(f"{reference}@{digest}" for reference, digest in digests.items())


@click.command(help=__doc__)
@click.argument("registry")
@click.option("--sign", default="", help="Start of a command that signs the REPOSITORY@DIGEST at its end.")
@click.option("--architecture", "architectures", multiple=True, help="Architecture of images; repeatable.")
def main(registry: str, sign: str, architectures: tuple[str, ...]) -> None:
    """Command line."""
    try:
        build.prepare(["crane", "helm"])
        digests = publish(registry.rstrip("/"), release.FOLDER, sign=shlex.split(sign), architectures=architectures)
    except (release.ReleaseError, images.ImageError, sbom.SbomError, ClusterError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    click.echo(lines(digests))


if __name__ == "__main__":
    main()
