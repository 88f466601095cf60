"""Where published artifacts come from: the commit and the page of the checkout, and who built them."""

import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from e2e import charts
from e2e.provenance import BUILD_TYPE, BY_HAND, labels, predicate
from tests.conftest import REPOSITORY

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
    assert labels(checkout) == {REVISION: git(checkout, "rev-parse", "HEAD")}


def test_changes_that_are_not_committed_are_said(checkout: Path) -> None:
    (checkout / "file").write_text("2")
    assert labels(checkout)[REVISION] == f"{git(checkout, 'rev-parse', 'HEAD')}-dirty"


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
    assert labels(checkout).get(SOURCE) == source


def test_files_without_a_checkout_have_no_labels_even_inside_another_one(checkout: Path) -> None:
    (checkout / "archive").mkdir()
    assert labels(checkout / "archive") == {}


HOME = charts.metadata()["home"]
STARTED = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
WORKFLOW = {
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "team/fork",
    "GITHUB_WORKFLOW_REF": "team/fork/.github/workflows/release.yaml@refs/tags/v1",
    "GITHUB_RUN_ID": "17",
    "GITHUB_RUN_ATTEMPT": "2",
}


def test_the_provenance_names_command_and_commit(checkout: Path) -> None:
    git(checkout, "remote", "add", "origin", "git@github.com:team/fork.git")
    definition = json.loads(predicate("a/chart:1", STARTED, repository=checkout, environment={}))["buildDefinition"]
    assert definition == {
        "buildType": f"{HOME}/{BUILD_TYPE}",
        "externalParameters": {"command": "make release", "artifact": "a/chart:1", "version": charts.version()},
        "resolvedDependencies": [
            {
                "name": "source",
                "digest": {"gitCommit": git(checkout, "rev-parse", "HEAD")},
                "uri": "git+https://github.com/team/fork",
            }
        ],
    }


def test_the_provenance_says_that_the_commit_is_not_all(checkout: Path) -> None:
    (checkout / "file").write_text("2")
    found = json.loads(predicate("a/chart:1", STARTED, repository=checkout, environment={}))
    (source,) = found["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": git(checkout, "rev-parse", "HEAD")}
    assert source["annotations"] == {"dirty": True}


def test_the_builder_is_the_workflow_or_a_person(checkout: Path) -> None:
    by_workflow, by_hand = (
        json.loads(predicate("a/chart:1", STARTED, repository=checkout, environment=environment))["runDetails"]
        for environment in (WORKFLOW, {})
    )
    assert by_workflow["builder"] == {"id": f"https://github.com/{WORKFLOW['GITHUB_WORKFLOW_REF']}"}
    assert by_workflow["metadata"]["invocationId"] == "https://github.com/team/fork/actions/runs/17/attempts/2"
    assert by_hand["builder"] == {"id": f"{HOME}/{BY_HAND}"}
    assert by_hand["metadata"].keys() == {"startedOn", "finishedOn"}
    assert by_hand["metadata"]["startedOn"] == "2026-11-30T12:00:00Z"


@pytest.mark.parametrize("below", [BUILD_TYPE, BY_HAND])
def test_the_pages_that_the_provenance_names_exist(below: str) -> None:
    path, _, heading = below.removeprefix("blob/main/").partition("#")
    headings = re.findall(r"^#+ (.*)$", (REPOSITORY / path).read_text(encoding="utf-8"), re.MULTILINE)
    assert heading in [re.sub(r"[^a-z -]", "", each.lower()).replace(" ", "-") for each in headings]
