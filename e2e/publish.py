"""Publishes a release: images, chart and OLM's bundle to an OCI registry, and files that belong to them.

    uv run python -m e2e.publish ghcr.io/team --sign 'cosign sign --yes' --attest 'cosign attest --yes'

`make release` calls it. Into dist/release/ go the files of e2e/release.py for this registry, `digests.yaml` (what was
pushed), bills of materials, provenance, the notes from the CHANGELOG, and checksums. Log in to the registry first:
buildah and Helm find credentials where docker and podman keep theirs. Nothing is pushed unless all files can be made.
What is in the registry is never replaced, but for the metadata for Artifact Hub.
"""

import shlex
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
import yaml

from e2e import artifact_hub, charts, images, olm, provenance, release, sbom, wheels
from e2e.cluster import build
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError

CHANGELOG: Final = images.REPOSITORY / "CHANGELOG.md"
CHARTS: Final = "charts"
"""Below it is the chart in a registry."""
PROVENANCE: Final = ".slsa.json"
PREDICATES: Final = {"slsaprovenance1": PROVENANCE, "cyclonedx": sbom.ENDING}
"""What is attested: the type, as cosign calls it, and the end of the file's name."""
_PUSH_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class Artifact:
    """What has a digest in the registry, and by it a signature and attestations.

    Attributes:
        target: Its reference there.
        name: The start of the names of its files.
        variants: The image, or those for several architectures, which make a list of images; none for other artifacts.
    """

    target: str
    name: str
    variants: tuple[images.Image, ...] = ()

    @property
    def members(self) -> tuple["Artifact", ...]:
        """Of a list of images, each image: it has a digest of its own, too."""
        if len(self.variants) < 2:
            return ()
        return tuple(
            Artifact(f"{self.target}-{image.architecture}", f"{self.name}-{image.architecture}", (image,))
            for image in self.variants
        )


def publish(
    registry: str,
    folder: Path,
    *,
    names: Sequence[str] = tuple(images.IMAGES),
    changelog: Path = CHANGELOG,
    sign: Sequence[str] = (),
    architectures: Sequence[str] = (),
    attest: Sequence[str] = (),
) -> dict[str, str]:
    """Write the files of a release, push its images, its chart and its bundle, sign them and attest what they are.

    Args:
        registry: Host and path, such as ghcr.io/team. One on this machine is spoken to without TLS.
        folder: For the files; removed first if it exists.
        names: The images, folders below images/.
        changelog: Has the notes of the version.
        sign: The start of a command that signs the REPOSITORY@DIGEST at its end; none without it.
        architectures: Those that an image is published for, if its packages are pinned for them: a reference then names
            a list of images. Default: an image for this machine's.
        attest: The start of a command that takes `--type TYPE --predicate FILE REPOSITORY@DIGEST`; none without it.

    Returns:
        The digest of each reference that was pushed.

    Raises:
        ReleaseError: Something is missing, or the registry has this version.
        ImageError: An image can't be built or pushed.
        SbomError: A bill of materials is not valid.
        ClusterError: Helm, crane or one of the commands failed.
    """
    started = datetime.now(UTC)
    number = charts.version()
    repository = f"{registry}/{CHARTS}/{charts.CHART.name}"
    chart = Artifact(f"{repository}:{number}", "chart")
    bundle = Artifact(f"{registry}/{olm.IMAGE}:{number}", "olm-bundle")
    image_artifacts = _image_artifacts(registry, names, architectures)
    artifacts = [*image_artifacts, chart, bundle]
    digests = {each.target: digest for each in artifacts if (digest := _digest(each.target))}
    _require_new(number, digests)
    packed = _write_files(registry, folder, changelog)
    _require_images(packed, registry, {each.target for each in artifacts})
    built = {each.name: each.variants[0] for each in image_artifacts if not each.members}
    images.build(list(built.values()))
    sbom.write_all(folder, built)
    new = [each for each in artifacts if each.target not in digests]
    for each in new:
        text = provenance.predicate(each.target, started, built=each.variants)
        (folder / f"{each.name}{PROVENANCE}").write_text(text, encoding="utf-8")
    for each in image_artifacts:
        if each in new:
            digests[each.target] = _push_list(each, digests) if each.members else _push_image(each)
    digests[chart.target] = _push_chart(packed, chart.target)
    digests[bundle.target] = _push_bundle(olm.packed(folder, number), bundle.target)
    _push_metadata(repository)
    (folder / "digests.yaml").write_text(yaml.safe_dump(digests), encoding="utf-8")
    release.write_checksums(folder)
    pushed = {_by_digest(each.target, digests): each.name for each in new}
    run_all([*signing(sign, pushed), *attesting(attest, pushed, folder)])
    return digests


def _image_artifacts(registry: str, names: Sequence[str], architectures: Sequence[str]) -> list[Artifact]:
    """The images, and each list of images after those that it names, which the registry has to have first."""
    found = [
        Artifact(f"{registry}/{image.name}:{image.tag}", f"image-{image.name}", image.variants(architectures))
        for image in (images.IMAGES[name] for name in names)
    ]
    return [artifact for each in found for artifact in (*each.members, each)]


def _write_files(registry: str, folder: Path, changelog: Path) -> Path:
    """Write what needs neither images nor a push, and return the packed chart."""
    number = charts.version()
    text = release.notes(number, changelog.read_text(encoding="utf-8"))
    release.write_all(folder, registry, changes=text)
    wheels.build(folder)
    (folder / "notes.md").write_text(text, encoding="utf-8")
    return folder / f"{charts.CHART.name}-{number}.tgz"


def _require_new(number: str, there: Iterable[str]) -> None:
    """Images of vLLM have vLLM's version, and several releases may share one."""
    released = [each for each in there if f":{number}-" in f"{each}-"]  # also NUMBER-ARCHITECTURE
    if released:
        raise charts.ReleaseError(
            f"The registry has {', '.join(released)}. A released version is never replaced: run `make version V=...`."
        )


def _require_images(packed: Path, registry: str, pushed: Container[str]) -> None:
    """Router and model images have tags of their own, so a new registry lacks those of an earlier release."""
    missing = [each for each in charts.containers(packed) if each not in pushed and _digest(each) is None]
    if missing:
        source = "EARLIER_REGISTRY" if registry == charts.REGISTRY else charts.REGISTRY
        copies = (f"crane copy {source}{each.removeprefix(registry)} {each}" for each in missing)
        raise charts.ReleaseError(
            f"The chart names {', '.join(missing)}, which the registry does not have and this release does not push. "
            "Copy from a registry that has it, then repeat:" + "".join(f"\n  {copy}" for copy in copies)
        )


def _push_list(artifact: Artifact, digests: Mapping[str, str]) -> str:
    """Push a list of images, which have been pushed, and return its digest."""
    target = artifact.target
    manifests = [f"--manifest={_by_digest(each.target, digests)}" for each in artifact.members]
    run([*_crane(target, "index"), "append", *manifests, f"--tag={target}"], timeout=_PUSH_SECONDS)
    return _pushed(target)


def _push_image(artifact: Artifact) -> str:
    """Push an image with the labels of this checkout, and return its digest.

    The labels are set in the registry: as part of the build, each commit would build all layers anew.
    """
    (image,), target = artifact.variants, artifact.target
    digest = images.push(image, target, tls=_tls(target))
    labels = [f"--label={name}={value}" for name, value in provenance.labels().items()]
    if not labels:
        return digest
    run([*_crane(target, "mutate"), *labels, f"--tag={target}", target], timeout=_PUSH_SECONDS)
    return _pushed(target)


def _push_bundle(packed: Path, bundle: str) -> str:
    """Push OLM's bundle as an image, and return its digest."""
    run([*_crane(bundle, "append"), f"--new_layer={packed}", f"--new_tag={bundle}"], timeout=_PUSH_SECONDS)
    labels = [f"--label={name}={value}" for name, value in {**olm.LABELS, **provenance.labels()}.items()]
    # An image without a platform is no valid one; its files are the same for all.
    platform = "--set-platform=linux/amd64"
    run([*_crane(bundle, "mutate"), platform, *labels, f"--tag={bundle}", bundle], timeout=_PUSH_SECONDS)
    return _pushed(bundle)


def _push_metadata(repository: str) -> None:
    """Push what Artifact Hub reads of the chart's repository, which replaces what an earlier release has pushed."""
    target = f"{repository}:{artifact_hub.TAG}"
    with TemporaryDirectory() as folder:
        run([*_crane(target, "push"), artifact_hub.write_layout(Path(folder, "layout")), target], timeout=_PUSH_SECONDS)


def _push_chart(packed: Path, chart: str) -> str:
    """Push the chart and return its digest."""
    plain = [] if _tls(chart) else ["--plain-http"]
    run([build.binary("helm"), "push", packed, f"oci://{chart.rpartition('/')[0]}", *plain], timeout=_PUSH_SECONDS)
    return _pushed(chart)


def _pushed(reference: str) -> str:
    digest = _digest(reference)
    if digest is None:
        raise charts.ReleaseError(f"The registry does not have {reference}, which was pushed to it.")
    return digest


def _by_digest(target: str, digests: Mapping[str, str]) -> str:
    """REPOSITORY@DIGEST."""
    return f"{target.rpartition(':')[0]}@{digests[target]}"


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


def signing(command: Sequence[str], pushed: Iterable[str]) -> list[list[str]]:
    """The commands that sign what was pushed.

    Args:
        command: The start of each, as of `publish`.
        pushed: REPOSITORY@DIGEST of each artifact.
    """
    return [[*command, each] for each in pushed if command]


def attesting(command: Sequence[str], pushed: Mapping[str, str], folder: Path) -> list[list[str]]:
    """The commands that attest provenance and bill of materials of what was pushed.

    Args:
        command: The start of each, as of `publish`.
        pushed: The name of each artifact's files, by its REPOSITORY@DIGEST.
        folder: Of the files. An artifact has no bill of materials if there is no file with it.
    """
    files = (
        (reference, kind, folder / f"{artifact}{ending}")
        for reference, artifact in pushed.items()
        for kind, ending in PREDICATES.items()
    )
    return [
        [*command, "--type", kind, "--predicate", str(file), reference]
        for reference, kind, file in files
        if command and file.exists()
    ]


def run_all(commands: Sequence[Sequence[str]]) -> None:
    """Run the commands that sign and attest, one after the other.

    Raises:
        ReleaseError: One failed. A repeated release would be refused, so the message has the commands that are left.
    """
    for number, words in enumerate(commands):
        try:
            run(words, timeout=_PUSH_SECONDS)
        except ClusterError as error:
            left = "".join(f"\n  {shlex.join(each)}" for each in commands[number:])
            raise charts.ReleaseError(
                f"{error}\nAll is pushed, but not all is signed and attested. Correct the cause, then run the rest:"
                f"{left}"
            ) from error


def _tls(reference: str) -> bool:
    return not reference.startswith(("localhost:", "127.0.0.1:"))


def lines(digests: Mapping[str, str]) -> str:
    """What was pushed, to be read."""
    return "\n".join(f"{reference}@{digest}" for reference, digest in digests.items())


@click.command(help=__doc__)
@click.argument("registry")
@click.option("--sign", default="", help="Start of a command that signs the REPOSITORY@DIGEST at its end.")
@click.option("--attest", default="", help="The same, for one that takes --type TYPE --predicate FILE before it.")
@click.option(
    "--architecture",
    "architectures",
    multiple=True,
    type=click.Choice(list(images.MACHINES)),
    help="Architecture of images; repeatable.",
)
def main(registry: str, sign: str, attest: str, architectures: tuple[str, ...]) -> None:
    """Command line."""
    try:
        build.prepare(["crane", "helm"])
        digests = publish(
            registry.rstrip("/"),
            release.FOLDER,
            sign=shlex.split(sign),
            attest=shlex.split(attest),
            architectures=architectures,
        )
    except (charts.ReleaseError, images.ImageError, sbom.SbomError, ClusterError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    click.echo(lines(digests))


if __name__ == "__main__":
    main()
