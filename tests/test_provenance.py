"""Labels of published images: the commit and the page of the checkout."""

import subprocess
from pathlib import Path

import pytest

from e2e.publish import provenance

COMMIT = ("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "--message=a")
REVISION = "org.opencontainers.image.revision"
SOURCE = "org.opencontainers.image.source"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit and a tag."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, *COMMIT)
    git(tmp_path, "tag", "v1")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    return subprocess.check_output(["git", "-C", folder, *words], text=True).strip()


def test_the_revision_is_the_commit_whatever_tags_it_has(checkout: Path) -> None:
    assert provenance(checkout) == {REVISION: git(checkout, "rev-parse", "HEAD")}


def test_changes_that_are_not_committed_are_said(checkout: Path) -> None:
    (checkout / "file").write_text("2")
    assert provenance(checkout)[REVISION] == f"{git(checkout, 'rev-parse', 'HEAD')}-dirty"


@pytest.mark.parametrize(
    ("remote", "source"),
    [
        ("https://github.com/pdinference/pdinference", "https://github.com/pdinference/pdinference"),
        ("https://user:token@github.com/team/fork.git", "https://github.com/team/fork"),
        ("git@github.com:team/fork.git", "https://github.com/team/fork"),
        ("ssh://git@git.example.org:2222/team/fork.git", "https://git.example.org/team/fork"),
        ("/srv/git/fork", None),
    ],
)
def test_the_source_is_the_page_of_the_remote_without_credentials(
    checkout: Path, remote: str, source: str | None
) -> None:
    git(checkout, "remote", "add", "origin", remote)
    assert provenance(checkout).get(SOURCE) == source


def test_files_without_a_checkout_have_no_labels_even_inside_another_one(checkout: Path) -> None:
    (checkout / "archive").mkdir()
    assert provenance(checkout / "archive") == {}
