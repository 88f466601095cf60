"""A kubeconfig that cannot be used is named, with what to do."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdinference.cluster import kubeconfig as module
from pdinference.cluster.client import default_namespace, load_configuration
from pdinference.cluster.kubeconfig import ConfigurationError

Json = dict[str, Any]


def written(folder: Path, **changes: Any) -> Path:
    """A kubeconfig with some of its members replaced."""
    config: Json = {
        "current-context": "work",
        "contexts": [
            {"name": "work", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}},
            {"name": "other", "context": {"cluster": "gone", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump({**config, **changes}), encoding="utf-8")
    return file


async def refusal(file: Path | None, context: str | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        await load_configuration(file, context)
    return str(caught.value)


async def test_a_missing_file_is_named_with_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    missing = tmp_path / "missing"
    monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", str(missing))
    expected = f"There is no kubeconfig {missing}. Set KUBECONFIG, or pass --kubeconfig."
    with caplog.at_level(logging.WARNING):
        assert await refusal(None) == await refusal(missing) == expected
    assert caplog.messages == [], "the client's own words are not printed"


async def test_of_several_files_one_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = f"{tmp_path / 'missing'}:{written(tmp_path)}"
    monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", places)
    assert default_namespace() == "team-a"


async def test_a_context_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    file = written(tmp_path)
    choice = "Pass --context with one of: work, other."
    assert await refusal(file, "nope") == f"The kubeconfig {file} has no context nope. {choice}"
    with pytest.raises(ConfigurationError, match="has no context nope"):
        default_namespace(file, "nope")
    assert default_namespace(file, "other") == "default"
    written(tmp_path, **{"current-context": ""})
    assert await refusal(file) == f"The kubeconfig {file} has no current-context. {choice}"
    written(tmp_path, **{"current-context": "", "contexts": None})
    assert "has no current-context. Pass another file with --kubeconfig." in await refusal(file)


async def test_a_cluster_that_is_missing_in_it_is_named(tmp_path: Path) -> None:
    file = written(tmp_path)
    found = await refusal(file, "other")
    assert found.startswith(
        f"The kubeconfig {file} cannot be used: Invalid kube-config file. Expected object with name"
    )
    assert found.endswith(". Correct it, or pass another one: --kubeconfig.")


@pytest.mark.parametrize("content", [b"", b'"""No kubeconfig."""\nimport os', b"text", b"- a", b"{", b"\xff\xfe\x00"])
async def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config"
    file.write_bytes(content)
    for load in (load_configuration(file), asyncio.to_thread(default_namespace, file)):
        with pytest.raises(ConfigurationError) as caught:
            await load
        assert str(caught.value).startswith(f"{file} is not a kubeconfig")
        assert "\n" not in str(caught.value)
