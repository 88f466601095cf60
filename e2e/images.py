"""Builds the images of images/ on a machine without Docker and without a registry.

    uv run python -m e2e.images build                      # all of them
    uv run python -m e2e.images build operator
    uv run python -m e2e.images build --architecture arm64 operator
    uv run python -m e2e.images save operator operator.tar # for `docker load`, `ctr images import`, kind, k3s
    uv run python -m e2e.images requirements               # after a change of uv.lock
    uv run python -m e2e.images clean

The Dockerfiles are ordinary ones. Only their base is made here, from Debian's packages, because no registry can be
reached: mmdebstrap makes a root with Python 3.11, and buildah builds on it, in a storage of its own below the cache
folder: the caller's images are never seen or touched. An image carries a hash of everything that went into it, so what
has not changed is not built again. The local cluster takes images straight from that storage, as hard links; for any
other cluster there is `save`, which writes an archive.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click

from e2e import programs
from e2e.cluster import paths
from e2e.cluster.files import locked

REPOSITORY: Final = Path(__file__).parent.parent
_SUITE: Final = "bookworm"
_BASE_PACKAGES: Final = ("ca-certificates", "python3", "python3-venv")
_BASE_RECIPE: Final = "2"  # raise it to make the base anew, with Debian's latest security updates
_BASE_SECONDS: Final = 1800
_EMULATED_BASE_SECONDS: Final = 5400  # 420 to 780 s on two cores with a load of 10 to 30
_BUILD_SECONDS: Final = 5400  # longer than the server at the end of vllm-cpu may take to start
MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""Architectures, as images and Debian call them, with the kernel's names."""
OWN: Final = {machine: name for name, machine in MACHINES.items()}.get(platform.machine(), platform.machine())
"""The architecture of this machine."""
_EMULATION: Final = Path("/proc/sys/fs/binfmt_misc")
TOOLS: Final = ("buildah", "mmdebstrap")
"""Programs of Debian that building takes, and the names of their packages."""
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_INDEXES: Final = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "TORCH_INDEX_URL")
_STEP: Final = re.compile(r"(\[\d+/\d+\] )?STEP ")
_LINE_LENGTH: Final = 110
_LAST_LINES: Final = 40
_NEEDED_BYTES: Final = 12_000_000_000  # the largest image, its packed layer while it is committed, and slack
LABEL: Final = "io.pdinference.inputs"
"""Of a built image: the hash of what it was built from."""
_STREAMER: Final = "images/vllm-cpu/requirements-streamer.txt"
"""vLLM's own images have the streamer, its CPU build has not. Its boto3 and the operator's Kubernetes client want other
releases of python-dateutil, so it cannot be in uv.lock."""
_PINS: Final = re.compile(r"(.*-)?requirements(-.*)?\.txt")
_VLLM_ROUTER: Final = "images/router"
"""Commits up to c7b90f0 had vllm-router in an image of its own."""
_FOR_ARM: Final = re.compile(r"_(aarch64|arm64)(_\w+)?\.whl$")
_CUDA: Final = re.compile(r"(nvidia-|cuda-|triton$|nixl-cu12$)")
_TORCH: Final = ("torch", "nvidia-cuda-cupti", "nvidia-cuda-runtime")


class ImageError(Exception):
    """Something a person can act on: the message says what went wrong and what to do about it."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image of this repository for machines of one architecture.

    Attributes:
        name: Its folder below images/, and the last part of its reference.
        tag: The version in its reference.
        inputs: The files and folders, relative to the repository, that its Dockerfile copies.
        repository: The sources: this checkout, or the files of another commit.
        architectures: Those that its packages are pinned for.
        architecture: Of the machines that run it. Default: that of this machine.
    """

    name: str
    tag: str
    inputs: tuple[str, ...]
    repository: Path = REPOSITORY
    architectures: tuple[str, ...] = ("amd64",)
    architecture: str = OWN

    @property
    def foreign(self) -> str | None:
        """Its architecture, if this machine runs its programs under emulation alone."""
        return None if self.architecture == OWN else self.architecture

    @property
    def reference(self) -> str:
        """What pods call it."""
        return f"localhost/pdinference/{self.name}:{'-'.join(filter(None, [self.tag, self.foreign]))}"

    @property
    def dockerfile(self) -> Path:
        """How it is built."""
        return self.repository / "images" / self.name / "Dockerfile"

    def variants(self, architectures: Sequence[str]) -> tuple["Image", ...]:
        """The image for each architecture that its packages are pinned for; without any, for this machine's."""
        pinned = [each for each in dict.fromkeys(architectures) if each in self.architectures]
        return tuple(replace(self, architecture=each) for each in pinned) or (self,)


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that can be loaded into a cluster: `cluster.load_image(built.reference, storage=built.storage)`.

    Attributes:
        reference: What pods call it.
        storage: buildah's storage that holds it.
        content: Hash of all that it was built from; differs between two builds under the same reference.
    """

    reference: str
    storage: Path
    content: str


def project_version(repository: Path = REPOSITORY) -> str:
    """The version in pyproject.toml."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


IMAGES: Final = {
    image.name: image
    for image in (
        Image(
            "operator",
            project_version(),
            ("pyproject.toml", "uv.lock", "README.md", "LICENSE", "operator", "images/uv-requirements.txt"),
            architectures=("amd64", "arm64"),
        ),
        Image("vllm-cpu", "0.32.0", ("images/vllm-cpu", "images/uv-requirements.txt")),
    )
}


def build_images(names: Sequence[str] = tuple(IMAGES), architecture: str = OWN) -> dict[str, BuiltImage]:
    """Build images of this checkout for one architecture: `build`, by their names.

    Args:
        names: Folders below images/.
        architecture: Of the machines that run them.

    Raises:
        ImageError: An image can't be built; the message says why.
    """
    unknown = sorted(set(names) - IMAGES.keys())
    if unknown:
        raise ImageError(f"There is no image {', '.join(unknown)}: choose from {', '.join(IMAGES)}.")
    built = build([replace(IMAGES[name], architecture=architecture) for name in names])
    return dict(zip(names, built, strict=True))


def build(images: Sequence[Image]) -> list[BuiltImage]:
    """Build what is not up to date, and say where each image is.

    Args:
        images: The build of a foreign one runs its programs under emulation.

    Raises:
        ImageError: An image can't be built; the message says why.
    """
    for image in images:
        if image.architecture not in image.architectures:
            raise ImageError(f"The packages of {image.name} are not pinned for {image.architecture}.")
    # One build at a time: two would take the same cores and the same disk, and one of them may be what the other needs.
    with locked(_lock()):
        return [_up_to_date(image) for image in images]


def build_earlier(repository: Path, tag: str) -> tuple[BuiltImage, BuiltImage]:
    """Build the images of the operator and its router from the files of another commit, unless they are up to date.

    Args:
        repository: The files of that commit.
        tag: Of the references, which must differ from those of this checkout's images.

    Raises:
        ImageError: An image can't be built; the message says why.
    """
    images = [replace(IMAGES["operator"], repository=repository.absolute(), tag=tag)]
    if (repository / _VLLM_ROUTER).exists():
        images.append(Image("router", tag, (_VLLM_ROUTER, "images/uv-requirements.txt"), repository.absolute()))
    built = build(images)
    return built[0], built[-1]


def save(name: str, archive: Path) -> None:
    """Write an image to an archive that `docker load` and `ctr images import` read; builds it first if need be.

    Args:
        name: Its folder below images/.
        archive: The file to write, which must not exist.

    Raises:
        ImageError: It can't be built or written.
    """
    image = build_images([name])[name]
    if archive.exists():
        raise ImageError(f"{archive} exists: remove it, or choose another name.")
    _archive(image.reference, archive.absolute())


def push(image: Image, target: str, *, tls: bool = True) -> str:
    """Push a built image to a registry.

    Args:
        image: What was built.
        target: Its reference in the registry.
        tls: Whether the registry speaks TLS.

    Returns:
        The digest that the registry has.

    Raises:
        ImageError: It cannot be pushed.
    """
    with TemporaryDirectory() as folder:
        digest = Path(folder) / "digest"
        options = ["--quiet", f"--tls-verify={str(tls).lower()}", f"--digestfile={digest}"]
        _buildah("push", "push", *options, image.reference, f"docker://{target}")
        return digest.read_text(encoding="utf-8").strip()


def _archive(reference: str, archive: Path) -> None:
    _buildah("save", "push", "--quiet", reference, f"docker-archive:{archive}:{reference}")


def clean() -> None:
    """Remove all images, their base and buildah's storage.

    Raises:
        ImageError: Something can't be removed.
    """
    with locked(_lock()):
        if _folder().exists() and shutil.which("buildah"):
            _forget_containers()
        shutil.rmtree(_folder(), ignore_errors=True)
        if _folder().exists():
            raise ImageError(f"{_folder()} can't be removed whole: is something mounted below it? See `findmnt`.")
    _lock().unlink(missing_ok=True)


@contextlib.contextmanager
def mounted(image: Image) -> Iterator[Path]:
    """The files of a built image, to be read until the end of the block.

    Raises:
        ImageError: There is no such image.
    """
    with locked(_lock()):
        container = _output(_buildah_command("from", "--quiet", "--pull-never", image.reference)).strip()
        try:
            yield Path(_output(_buildah_command("mount", container)).strip())
        finally:
            _forget_containers()


def base_layer(image: Image) -> str:
    """The digest of a built image's first layer, uncompressed: the base made from Debian's packages.

    Raises:
        ImageError: There is no such image.
    """
    configuration = _configuration(image.reference)
    if configuration is None:
        raise ImageError(f"There is no image {image.reference}: run `make images`.")
    return str(configuration["rootfs"]["diff_ids"][0])


def pins(image: Image) -> list[Path]:
    """The files that pin the packages of an image by version and hash."""
    inputs = {file for each in (*image.inputs, f"images/{image.name}") for file in _files(image.repository / each)}
    return sorted(file for file in inputs if file.name == "uv.lock" or _PINS.fullmatch(file.name))


def requirement_files(*, online: bool = True) -> dict[Path, str]:
    """Compute the pinned requirements that the Dockerfiles install, from uv.lock and the pins above.

    Args:
        online: Whether to compute also those that are not in uv.lock, which takes PyPI.

    Returns:
        What belongs into each file, by its path.

    Raises:
        ImageError: uv failed; it needs PyPI for its own pins.
    """
    locked_packages = _export_vllm()
    header = "# Written by `uv run python -m e2e.images requirements`; don't edit.\n"
    torch = {name: text for name, text in locked_packages.items() if name in _TORCH}
    others = {name: text for name, text in locked_packages.items() if name != "torch" and not _CUDA.match(name)}
    contents = {
        "images/vllm-cpu/requirements.txt": "".join(others.values()),
        "images/vllm-cpu/requirements-torch.txt": "".join(torch.values()),
    }
    if online:
        contents["images/uv-requirements.txt"] = "".join(_compile(f"uv=={_pinned('images/uv-requirements.txt', 'uv')}"))
        streamer = f"runai-model-streamer[s3]=={_pinned(_STREAMER, 'runai-model-streamer')}"
        there = "\n".join(text.partition(" \\")[0] for text in locked_packages.values())
        contents[_STREAMER] = "".join(
            text
            for text in _compile(streamer, constraints=there)
            if (name := text.partition("==")[0]) not in locked_packages
            and not _CUDA.match(name)
            and name != "setuptools"
        )
    return {REPOSITORY / path: header + content for path, content in contents.items()}


def _pinned(path: str, package: str) -> str:
    """The pinned version; for another one, write its number into the file and compute the hashes anew."""
    (version,) = re.findall(rf"^{package}==(\S+)", (REPOSITORY / path).read_text(), re.MULTILINE)
    return str(version)


def _export_vllm() -> dict[str, str]:
    """The lock's packages of the group `vllm` with their hashes, by name."""
    command = [
        str(programs.UV),
        "export",
        "--quiet",
        "--frozen",
        "--only-group",
        "vllm",
        "--no-header",
        "--no-annotate",
    ]
    elsewhere = _hashes_for_arm()
    packages: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", _output(command).strip()):
        requirement, _, marker = block.partition("\n")[0].removesuffix("\\").partition(";")
        # The image is always Linux on x86-64 with Python 3.11, so a package that is locked twice is decided here.
        if "python_full_version >=" in marker:
            continue
        hashes = [each for each in re.findall(r"--hash=(\S+)", block) if each not in elsewhere]
        name = requirement.partition("==")[0]
        packages[name] = " \\\n".join([requirement.strip(), *(f"    --hash={each}" for each in hashes)]) + "\n"
    return packages


def _hashes_for_arm() -> set[str]:
    """The hashes of the locked wheels that only machines with 64-bit ARM processors install."""
    lock = tomllib.loads((REPOSITORY / "uv.lock").read_text(encoding="utf-8"))
    wheels = (wheel for package in lock["package"] for wheel in package.get("wheels", ()))
    return {wheel["hash"] for wheel in wheels if _FOR_ARM.search(wheel["url"])}


def _compile(requirement: str, constraints: str = "") -> list[str]:
    """A package and what it needs, each with its hashes."""
    options = ["--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
    target = ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28"]
    with TemporaryDirectory() as folder:
        bounds = Path(folder, "constraints.txt")
        bounds.write_text(constraints, encoding="utf-8")
        command = [str(programs.UV), "pip", "compile", *options, *target, "--constraint", str(bounds), "-"]
        return re.split(r"^(?=\S)", _output(command, stdin=requirement), flags=re.MULTILINE)


def _output(command: list[str], stdin: str = "") -> str:
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, cwd=REPOSITORY, timeout=_BASE_SECONDS, check=False
        )
    except FileNotFoundError:
        raise ImageError(f"{command[0]} is not there: run `make setup`, which installs what is needed.") from None
    if done.returncode:
        raise ImageError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


def _folder() -> Path:
    return paths.cache() / "images"


def _lock() -> Path:
    return paths.cache() / ".images.lock"


def _storage() -> Path:
    return _folder() / "storage" / "root"


def _up_to_date(image: Image) -> BuiltImage:
    _require_tools()
    content = content_hash(image)
    if _label(image.reference) != content:
        _require_emulation(image.foreign)
        _require_space()
        started = time.monotonic()
        _say(f"{image.reference}: building")
        _build(image, content)
        _say(f"{image.reference}: built in {time.monotonic() - started:.0f} s")
    return BuiltImage(image.reference, _storage(), content)


def content_hash(image: Image) -> str:
    """Hash all that decides what is in an image, so that a stale one can't be taken for a new one.

    Args:
        image: The image that would be built.
    """
    digest = hashlib.sha256()
    files = sorted(
        {file for each in (*image.inputs, f"images/{image.name}") for file in _files(image.repository / each)}
    )
    facts = [
        image.reference,
        _base_key(image.foreign),
        *(f"{name}={os.environ.get(name, '')}" for name in _INDEXES),
    ]
    digest.update(json.dumps([facts, [os.path.relpath(file, image.repository) for file in files]]).encode())
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for each in path.rglob("*"):
        if each.is_file() and "__pycache__" not in each.parts:
            yield each


def _build(image: Image, content: str) -> None:
    base = _base(image.foreign)
    try:
        _buildah(
            image.name,
            "build",
            *_of_architecture(image.foreign),
            "--isolation=chroot",
            "--network=host",
            "--layers=false",
            "--format=docker",
            "--pull-never",
            f"--build-arg=BASE_IMAGE={base}",
            f"--build-arg=VERSION={image.tag}",
            *_network_options(),
            f"--label={LABEL}={content}",
            f"--tag={image.reference}",
            f"--file={image.dockerfile}",
            str(image.repository),
        )
    finally:
        _forget_containers()
        subprocess.run(_buildah_command("rmi", "--prune"), capture_output=True, check=False)  # the former version


def _of_architecture(architecture: str | None) -> list[str]:
    """Options of buildah for an architecture."""
    return [f"--arch={architecture}"] if architecture else []


def _base_key(architecture: str | None) -> str:
    recipe = json.dumps([_BASE_RECIPE, _SUITE, _BASE_PACKAGES, *([architecture] if architecture else [])])
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def _base(architecture: str | None) -> str:
    """Make the base unless the storage has it, and return its reference."""
    key = _base_key(architecture)
    reference = f"localhost/pdinference/base:{key}"
    if _label(reference) == key:
        return reference
    _say("the images' base: installing Debian's packages")
    _forget_containers()  # of a build that was killed
    container = _output(_buildah_command("from", "--quiet", "scratch")).strip()
    try:
        root = _output(_buildah_command("mount", container)).strip()
        packages = ",".join(_BASE_PACKAGES)
        command = ["mmdebstrap", "--variant=minbase", f"--include={packages}", "--format=directory", *_LEAN]
        foreign = [f"--architectures={architecture}", "--skip=check/qemu"] if architecture else []  # it was checked
        limit = _EMULATED_BASE_SECONDS if architecture else _BASE_SECONDS
        _run([*command, *foreign, _SUITE, root], log="base", timeout=limit)
        settings = [
            *_of_architecture(architecture),
            f"--label={LABEL}={key}",
            "--env=PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin",
        ]
        _buildah("base", "config", *settings, container)
        _buildah("base", "commit", "--quiet", container, reference)
    finally:
        _forget_containers()
    return reference


# What no container reads: package lists, documentation, translations.
_LEAN: Final = (
    "--aptopt=Apt::Install-Recommends false",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
)


def _network_options() -> list[str]:
    """Let pip and uv in the build use this machine's certificate authorities and package indexes."""
    options = [f"--build-arg={name}={os.environ[name]}" for name in _INDEXES if os.environ.get(name)]
    if _CERTIFICATES.exists():
        options += [
            f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro",
            f"--build-arg=SSL_CERT_FILE={_CERTIFICATES}",
            f"--build-arg=PIP_CERT={_CERTIFICATES}",
        ]
    return options


def _buildah_command(*words: str) -> list[str]:
    state = _storage().with_name("run")
    return ["buildah", f"--root={_storage()}", f"--runroot={state}", "--storage-driver=overlay", *words]


def _buildah(log: str, *words: str) -> None:
    _run(_buildah_command(*words), log=log, timeout=_BUILD_SECONDS)


def _label(reference: str) -> str | None:
    """The hash of what went into an image, None when there is no such image."""
    configuration = _configuration(reference)
    if configuration is None:
        return None
    return str((configuration["config"].get("Labels") or {}).get(LABEL))


def _configuration(reference: str) -> dict[str, Any] | None:
    """OCI's configuration of an image, None when there is no such image."""
    done = subprocess.run(
        _buildah_command("inspect", "--type=image", reference), capture_output=True, text=True, check=False
    )
    return None if done.returncode else dict(json.loads(done.stdout)["OCIv1"])


def _forget_containers() -> None:
    """Remove what builds work in; also after a failure, an interruption or a kill."""
    for words in (("umount", "--all"), ("rm", "--all")):
        subprocess.run(_buildah_command(*words), capture_output=True, check=False)


def _run(command: Sequence[str], *, log: str, timeout: float) -> None:
    """Run a command whose output goes into a log, and show its steps while it runs.

    Args:
        command: The program and its arguments.
        log: The name of its log file below the cache folder.
        timeout: After how many seconds to give up.

    Raises:
        ImageError: It failed or took too long.
    """
    temporary = _folder() / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    file = _folder() / f"{log}.log"
    with file.open("w") as output:
        # A group of its own, so that what a build has started ends with it, whatever becomes of us.
        process = subprocess.Popen(
            command,
            env={**os.environ, "TMPDIR": str(temporary)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
        )
        watchdog = threading.Timer(timeout, _end, [process])
        watchdog.start()
        try:
            for line in process.stdout or ():
                output.write(line)
                output.flush()
                if _STEP.match(line):
                    _say(f"{log}: {line.strip()[:_LINE_LENGTH]}")
            status = process.wait()
        finally:
            late = watchdog.finished.is_set()
            watchdog.cancel()
            _end(process)
    if late:
        raise ImageError(f"{log}: `{command[0]}` took longer than {timeout:.0f} s; its output is in {file}.")
    if status:
        last = "".join(file.read_text().splitlines(keepends=True)[-_LAST_LINES:])
        raise ImageError(f"{log}: `{command[0]}` failed with {status}; the whole output is in {file}. It ends:\n{last}")


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _require_tools() -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0:
        raise ImageError("Building images needs root, for buildah's storage: become root (sudo -E env PATH=$PATH ...).")
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise ImageError(f"These are missing: {', '.join(missing)} (Debian's names). Install them and try again.")
    _say(f"installing {', '.join(missing)}")
    _folder().mkdir(parents=True, exist_ok=True)
    _run(["apt-get", "update"], log="apt", timeout=_BASE_SECONDS)
    _run(["apt-get", "install", "--yes", "--no-install-recommends", *missing], log="apt", timeout=_BASE_SECONDS)


def _require_emulation(architecture: str | None) -> None:
    """Programs of another architecture run if the kernel knows their emulator."""
    if architecture is None:
        return
    emulator = f"qemu-{MACHINES[architecture]}"
    if not (_EMULATION / emulator).exists():
        raise ImageError(
            f"This machine does not run programs of {architecture}. Install Debian's qemu-user-static and "
            f"binfmt-support, then run: mount -t binfmt_misc binfmt_misc {_EMULATION}; "
            f"update-binfmts --enable {emulator}"
        )


def _require_space() -> None:
    _folder().mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(_folder()).free
    if free < _NEEDED_BYTES:
        raise ImageError(
            f"{_folder()} has {free / 1e9:.0f} GB left, and building takes up to {_NEEDED_BYTES / 1e9:.0f} GB. "
            "Free some, or set PDINFERENCE_CACHE to a folder on a larger disk."
        )


def _say(text: str) -> None:
    click.echo(text, err=True)


@click.group()
def cli() -> None:
    """The images of this repository, without Docker."""


@cli.command("build")
@click.argument("names", nargs=-1, type=click.Choice(list(IMAGES)))
@click.option("--architecture", type=click.Choice(list(MACHINES)), default=OWN, help="Default: that of this machine.")
def build_command(names: tuple[str, ...], architecture: str) -> None:
    """Build all images, or only NAMES, and print what pods call them."""
    for image in build_images(names or tuple(IMAGES), architecture).values():
        click.echo(image.reference)


@cli.command("save")
@click.argument("name", type=click.Choice(list(IMAGES)))
@click.argument("archive", type=click.Path(path_type=Path))
def save_command(name: str, archive: Path) -> None:
    """Write the image NAME to the file ARCHIVE, for a cluster elsewhere."""
    save(name, archive)


@cli.command()
def requirements() -> None:
    """Write the pinned requirements of the images anew, from uv.lock."""
    for path, content in requirement_files().items():
        path.write_text(content)
        click.echo(path.relative_to(REPOSITORY))


@cli.command("clean")
def clean_command() -> None:
    """Remove all images, their base and buildah's storage."""
    clean()


def main() -> None:
    """Run a command; what a person can mend is told without a traceback."""
    programs.restrict()
    try:
        cli()
    except ImageError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
