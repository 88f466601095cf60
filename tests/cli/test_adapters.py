"""`validate` and `plan` read adapters from files on this machine, without network requests."""

import json
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pdinference.cli import main
from pdinference.cli.local_adapters import cache_of_hub

SQL = {"r": 64, "target_modules": ["q_proj"], "base_model_name_or_path": "meta-llama/Llama-3.1-8B"}
RANK = "spec.model.lora.adapters[0]: Adapter sql has rank 64, but spec.model.lora.maxRank is 16. Set maxRank: 64."
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command on a resource with one adapter."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))

    def command(name: str, path: str, **lora: Any) -> Result:
        config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
        model = {
            "source": {"huggingFace": {"repository": "meta-llama/Llama-3.1-8B"}},
            "architecture": {"config": {**config, "intermediate_size": 128, "vocab_size": 256}},
            "lora": {"adapters": [{"name": "sql", "path": path}], **lora},
        }
        body = {"apiVersion": "pdinference.io/v1alpha1", "kind": "PDInference", "metadata": {"name": "x"}}
        file = tmp_path / "x.yaml"
        pinned = {"accelerator": {"products": ["NVIDIA-L4"]}}
        spec = {"model": model, "parameter": pinned, "transfer": {"path": "Network"}}
        file.write_text(yaml.safe_dump({**body, "spec": spec}))
        return CliRunner().invoke(main, [name, "-f", str(file), *(["--memory=1Gi"] if name == "plan" else [])])

    return command


def adapter(folder: Path, config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def cached(tmp_path: Path, config: Any) -> None:
    """What the hub's client leaves of owner/sql in its cache."""
    kept = tmp_path / "hub" / "models--owner--sql"
    adapter(kept / "snapshots" / "c0ffee", config)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("c0ffee")


def test_an_adapter_in_a_folder_of_this_machine_is_read(run: Run, tmp_path: Path) -> None:
    path = str(adapter(tmp_path / "sql", SQL))
    refused = run("validate", path)
    assert refused.exit_code == 1
    assert RANK in refused.output
    assert run("render", path).exit_code == 1
    assert run("validate", path, maxRank=64).exit_code == 0
    planned = run("plan", path)
    assert planned.exit_code == 0
    assert RANK in planned.output
    assert "Warning" not in run("plan", path, maxRank=64).output


def test_an_adapter_in_the_cache_of_the_hubs_client_is_read(run: Run, tmp_path: Path) -> None:
    cached(tmp_path, {**SQL, "r": 8, "use_dora": True, "target_modules": ["c_attn"]})
    for name in ("validate", "plan"):
        said = run(name, "owner/sql").output
        assert "Adapter sql uses use_dora, which vLLM does not support. Remove the adapter." in said
        assert "Adapter sql targets c_attn, but models of type llama do not have" in said


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"XDG_CACHE_HOME": "/caches"},
        {"XDG_CACHE_HOME": "/caches", "HF_HOME": "$HOME/models"},
        {"HF_HOME": "/home", "HUGGINGFACE_HUB_CACHE": "/old"},
        {"HUGGINGFACE_HUB_CACHE": "/old", "HF_HUB_CACHE": "~/new"},
    ],
)
def test_the_cache_is_where_the_client_has_it(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    spec = find_spec("huggingface_hub.constants")
    assert spec is not None
    assert spec.loader is not None
    constants = module_from_spec(spec)  # it reads the variables when it is imported
    spec.loader.exec_module(constants)
    assert cache_of_hub() == Path(constants.HF_HUB_CACHE)


def test_another_base_is_worth_a_warning(run: Run, tmp_path: Path) -> None:
    cached(tmp_path, {**SQL, "r": 8, "base_model_name_or_path": "mistralai/Mistral-7B"})
    for name in ("validate", "plan"):
        found = run(name, "owner/sql")
        assert found.exit_code == 0
        assert (
            "base model of adapter sql is mistralai/Mistral-7B, but the model is meta-llama/Llama-3.1-8B"
            in found.output
        )


@pytest.mark.parametrize("config", [None, [], {}, {"r": "many"}])
def test_what_cannot_be_read_stays_unknown(run: Run, tmp_path: Path, config: Any) -> None:
    if config is not None:
        adapter(tmp_path / "sql", config)
        cached(tmp_path, config)
    for path in (str(tmp_path / "sql"), "owner/sql", "owner/other"):
        for name in ("validate", "plan"):
            found = run(name, path)
            assert (found.exit_code, "Warning" in found.output) == (0, False)
