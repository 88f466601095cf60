"""`make demo` and `make down`: which images and clusters they take."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from e2e.cluster import teardown
from e2e.cluster.spec import ClusterSpec
from e2e.demo import cli, pushed_images
from e2e.images import IMAGES


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three clusters, of which only the files exist. Stopping one would touch processes and links of this machine."""
    monkeypatch.setenv("PDINFERENCE_STATE", str(tmp_path))
    monkeypatch.delenv("PDINFERENCE_CLUSTER", raising=False)
    for index, name in enumerate(("demo", "e2e", "integration-1")):
        ClusterSpec(name=name, nodes=0, audit=False, kwok=False, index=index).save()
    found: list[str] = []
    monkeypatch.setattr(teardown, "remove", lambda spec: found.append(spec.name))
    return found


@pytest.mark.parametrize(
    ("options", "variable", "expected"),
    [
        ([], None, ["demo"]),
        ([], "e2e", ["e2e"]),
        (["--name", "integration-1"], "e2e", ["integration-1"]),
        (["--name", "none"], None, []),
    ],
)
def test_one_cluster_is_stopped(
    stopped: list[str], options: list[str], variable: str | None, expected: list[str]
) -> None:
    result = CliRunner().invoke(cli, ["down", *options], env={"PDINFERENCE_CLUSTER": variable})
    assert result.exit_code == 0, result.output
    assert stopped == expected


def test_those_that_stay_are_named(stopped: list[str]) -> None:
    output = " ".join(CliRunner().invoke(cli, ["down"]).output.split())
    assert stopped == ["demo"]
    assert "`make down PDINFERENCE_CLUSTER=e2e` removes it" in output


def test_images_of_a_registry_have_the_tags_that_a_release_pushes() -> None:
    images = pushed_images("registry.example/team", IMAGES["operator"].tag, "demo")
    pushed = [f"registry.example/team/{name}:{image.tag}" for name, image in IMAGES.items()]
    assert [images.operator, images.vllm] == pushed
