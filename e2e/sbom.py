"""Software bills of materials: what the operator, its development and the images consist of, as CycloneDX.

    uv run python -m e2e.sbom        # or `make sbom`; into dist/sbom/

uv writes those of the lock file. Those of the images come from the images themselves, as they were built: dpkg's
database, and the metadata of each installed Python distribution. Each is checked against CycloneDX's schema.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Final

import click
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from e2e import images, programs
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError

FOLDER: Final = images.REPOSITORY / "dist" / "sbom"
LOCKED: Final = {
    "operator-python": ("--no-default-groups", "--extra=operator", "--extra=hubs"),
    "development": ("--all-groups",),
}
"""What the lock file pins: for the operator alone, and for everything, each with uv's options."""
ENDING: Final = ".cdx.json"
"""Of the files' names."""
_FORMAT: Final = r"${db:Status-Abbrev}\t${Package}\t${Version}\t${Architecture}\t${source:Package}\n"
_DPKG: Final = Path("var/lib/dpkg")


class SbomError(Exception):
    """A bill of materials that is not as it should be; the message says why."""


def write_all(folder: Path, built: Mapping[str, images.Image]) -> list[Path]:
    """Write one for each part of the lock file and each image.

    Args:
        folder: For the files.
        built: Images that have been built, by the start of their files' names.

    Raises:
        SbomError: One is empty or invalid.
        ImageError: There is no such image.
        ClusterError: A program failed.
    """
    texts = {name: of_lock(*options) for name, options in LOCKED.items()}
    for name, image in built.items():
        with images.mounted(image) as root:
            texts[name] = of_image(image, root)
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / f"{name}{ENDING}": text for name, text in texts.items()}
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
    return list(files)


def of_lock(*options: str) -> str:
    """What uv.lock pins, with the hash of each file.

    Args:
        options: Which groups, as `uv export` takes them.
    """
    command: list[str | Path] = [programs.UV, "export", "--quiet", "--frozen", "--format=cyclonedx1.5", *options]
    return validated(run([*command, f"--project={images.REPOSITORY}"]))


def of_image(image: images.Image, root: Path) -> str:
    """What is installed in an image.

    Args:
        image: Which one.
        root: Its files.
    """
    described = Component(
        name=image.reference.rpartition(":")[0],
        version=image.tag,
        purl=PackageURL("oci", None, image.name, None, {"arch": image.architecture, "tag": image.tag}),
        type=ComponentType.CONTAINER,
        bom_ref=image.reference,
    )
    bom = Bom(components=[*_debian(root), *_python(root)])
    bom.metadata.component = described
    bom.register_dependency(described, bom.components)
    return validated(JsonV1Dot6(bom).output_as_string(indent=2) + "\n")


def validated(text: str) -> str:
    """The text itself, once it is known to follow CycloneDX's schema and to name something.

    Raises:
        SbomError: It does not.
    """
    document = json.loads(text)
    if not document.get("components"):
        raise SbomError("The bill of materials is empty.")
    problem = JsonStrictValidator(SchemaVersion.from_version(document["specVersion"])).validate_str(text)
    if problem is not None:
        raise SbomError(f"The bill of materials does not follow the schema of CycloneDX: {problem}")
    return text


def _debian(root: Path) -> Iterator[Component]:
    """Debian's packages."""
    if not (root / _DPKG / "status").exists():
        return
    for line in run(["dpkg-query", f"--admindir={root / _DPKG}", "--show", f"--showformat={_FORMAT}"]).splitlines():
        status, name, version, architecture, source = line.split("\t")
        if status.strip() != "ii":
            continue
        qualifiers = {"arch": architecture, "distro": _distribution(root), "upstream": source}
        yield _component(PackageURL("deb", "debian", name, version, qualifiers))


def _distribution(root: Path) -> str:
    """Such as `debian-12`, which is how scanners find the advisories of the release."""
    lines = (root / "etc/os-release").read_text(encoding="utf-8").splitlines()
    facts = {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}
    return f"{facts['ID']}-{facts['VERSION_ID']}"


def _python(root: Path) -> Iterator[Component]:
    """Python's distributions, in whichever environment; one that two environments hold is named once."""
    found = (PathDistribution(path) for path in root.rglob("*.dist-info") if (path / "METADATA").is_file())
    for name, version in sorted({(distribution.name, distribution.version) for distribution in found}):
        yield _component(PackageURL("pypi", None, name.lower().replace("_", "-"), version))


def _component(purl: PackageURL) -> Component:
    return Component(
        name=purl.name, version=purl.version, purl=purl, bom_ref=purl.to_string(), type=ComponentType.LIBRARY
    )


def main() -> None:
    """Write all."""
    programs.restrict()
    try:
        images.build_images()
        for file in write_all(FOLDER, {f"image-{name}": image for name, image in images.IMAGES.items()}):
            components = json.loads(file.read_text(encoding="utf-8"))["components"]
            click.echo(f"{file.relative_to(images.REPOSITORY)}: {len(components)} components")
    except (SbomError, images.ImageError, ClusterError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
