"""The images, as far as they can be judged without building them; e2e/ runs them for real."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from e2e import images, sbom

VLLM = images.REPOSITORY / "images" / "vllm-cpu"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_the_vllm_image_installs_what_the_lock_file_says() -> None:
    expected = {path: text for path, text in images.requirement_files(online=False).items() if "vllm-cpu" in path.parts}
    assert len(expected) == 2
    for path, text in expected.items():
        assert path.read_text() == text, "run `uv run python -m e2e.images requirements`"


@pytest.mark.parametrize(
    "path", sorted(images.REPOSITORY.glob("images/**/*requirements*.txt")), ids=lambda path: path.name
)
def test_everything_that_pip_installs_has_a_hash(path: Path) -> None:
    requirements = path.read_text().replace("\\\n", " ").splitlines()
    pinned = [line for line in requirements if line and not line.startswith("#")]
    assert pinned
    assert all(re.match(r"\S+==\S+ .*--hash=sha256:[0-9a-f]{64}", line) for line in pinned)


@pytest.mark.parametrize("name", images.IMAGES)
def test_an_image_installs_nothing_without_a_hash(name: str) -> None:
    text = images.IMAGES[name].dockerfile.read_text().replace("\\\n", " ")
    installs = re.findall(r"pip install[^;&]*", text)
    assert installs
    assert all("--require-hashes" in line for line in installs)
    assert all("--frozen" in line for line in re.findall(r"uv sync[^;&\n]*", text))


@pytest.mark.parametrize("name", images.IMAGES)
def test_the_base_of_an_image_is_pinned_by_its_digest(name: str) -> None:
    base = re.findall(r"^ARG BASE_IMAGE=(.*)", images.IMAGES[name].dockerfile.read_text(), re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:[\w.-]+@sha256:[0-9a-f]{64}", *base)


def tags_of_the_base(machine: str) -> set[Tag]:
    """Wheels that run on the base: Python 3.11, and glibc 2.36."""
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(5, 37)] + [f"manylinux2014_{machine}"]
    python = (3, 11)
    return {*cpython_tags(python, platforms=platforms), *compatible_tags(python, "cp311", platforms)}


@pytest.mark.parametrize("machine", [images.MACHINES[each] for each in images.IMAGES["operator"].architectures])
def test_every_package_of_the_operators_image_has_a_wheel(machine: str) -> None:
    """The image has no compiler."""
    lock = tomllib.loads((images.REPOSITORY / "uv.lock").read_text(encoding="utf-8"))
    wheels = {(each["name"], each["version"]): each.get("wheels", []) for each in lock["package"]}
    needed = json.loads(sbom.of_lock(*sbom.LOCKED["operator-python"]))["components"]
    tags = tags_of_the_base(machine)
    lacking = [
        each["name"]
        for each in needed
        if not any(
            tags & parse_wheel_filename(wheel["url"].rpartition("/")[2])[3]
            for wheel in wheels[each["name"], each["version"]]
        )
    ]
    assert len(needed) > 60
    assert lacking == []


def test_both_builds_of_pytorch_have_one_version() -> None:
    cpu, other = (
        re.findall(r"^torch==([0-9.]+)", (VLLM / name).read_text(), re.MULTILINE)
        for name in ("requirements-torch-cpu.txt", "requirements-torch.txt")
    )
    assert cpu == other


def test_no_cuda_library_is_installed_beside_the_two_that_pytorch_needs() -> None:
    text = "".join(path.read_text() for path in VLLM.glob("requirements*.txt"))
    names = [line.partition("==")[0] for line in text.splitlines() if "==" in line]
    assert {name for name in names if name.startswith(("nvidia-", "cuda-", "triton"))} == {
        "nvidia-cuda-cupti",
        "nvidia-cuda-runtime",
    }


def test_an_image_is_not_built_for_an_architecture_without_its_packages() -> None:
    with pytest.raises(images.ImageError, match="packages of vllm-cpu are not pinned for arm64"):
        images.build_images(["vllm-cpu"], "arm64")


def test_an_image_is_published_for_the_architectures_of_its_packages() -> None:
    operator, vllm = images.IMAGES["operator"], images.IMAGES["vllm-cpu"]
    several = [each.architecture for each in operator.variants(["arm64", "amd64", "arm64"])]
    assert several == ["arm64", "amd64"]
    assert [each.architecture for each in vllm.variants(["arm64", "amd64"])] == ["amd64"]
    assert operator.variants([]) == (operator,)
    assert operator.architecture == images.OWN


@pytest.mark.parametrize("name", images.IMAGES)
def test_images_run_as_nobody_in_particular(name: str) -> None:
    lines = images.IMAGES[name].dockerfile.read_text().splitlines()
    assert "USER 65532:65532" in lines
    assert any(line.startswith("ENTRYPOINT [") for line in lines)


@pytest.mark.parametrize("name", images.IMAGES)
def test_what_goes_into_an_image_decides_whether_it_is_built_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = images.IMAGES[name]
    before = images.content_hash(image)
    assert images.content_hash(image) == before
    extra = tmp_path / "extra"
    extra.write_text("1")
    more = images.Image(image.name, image.tag, (*image.inputs, str(extra)))
    monkeypatch.setenv("TORCH_INDEX_URL", "https://example.org/cpu")
    assert images.content_hash(image) != before
    monkeypatch.delenv("TORCH_INDEX_URL")
    one = images.content_hash(more)
    extra.write_text("2")
    assert len({before, one, images.content_hash(more)}) == 3


def test_a_stand_in_for_a_library_can_be_loaded(tmp_path: Path) -> None:
    library = tmp_path / "libcublas.so.13"
    library.write_bytes(load(VLLM / "slim.py").empty_library(library.name))
    subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(library)!r})"], check=True)


def test_a_patch_that_no_longer_fits_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patches = load(VLLM / "patches.py")
    folder = tmp_path / "demo-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    target = tmp_path / "demo.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    patch = patches.Patch(why="", distribution="demo", path="demo.py", before="old", after="new")
    for content in ("nothing", "old old"):
        target.write_text(content)
        with pytest.raises(SystemExit, match="not once"):
            patches.apply(patch)
        assert target.read_text() == content
    target.write_text("one old line")
    patches.apply(patch)
    assert target.read_text() == "one new line"


def test_the_operators_image_holds_what_its_bill_of_materials_says() -> None:
    """Of the image as it was built: the versions of the lock file, and the system that Python runs on."""
    images.build_images(["operator"])
    image = images.IMAGES["operator"]
    with images.mounted(image) as root:
        components = json.loads(sbom.of_image(image, root))["components"]
    locked = json.loads(sbom.of_lock(*sbom.LOCKED["operator-python"]))["components"]
    assert {each["purl"] for each in locked} <= {each["purl"] for each in components}
    assert {"libc6", "python3.11-minimal", "pdinference"} <= {each["name"] for each in components}
