"""Collects facts about LoRA adapters from their adapter_config.json.

Tests: tests/models/test_fetch.py, tests/models/files/test_hostile_files.py, tests/cli/test_adapters.py
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pdinference.api.plain_text import plain
from pdinference.models.errors import ModelError, ModelFilesError
from pdinference.models.facts import downloaded_config
from pdinference.models.files.local_files import read_config
from pdinference.models.hubs.hub import Hub

_LOG = logging.getLogger(__name__)
_CONFIG = "adapter_config.json"
_UNSUPPORTED = ("use_dora", "lora_bias", "alora_invocation_tokens", "layer_replication", "use_bdlora", "use_qalora")
"""Features that vLLM does not support (`_validate_features` in vllm/lora/peft_helper.py)."""
_SAVED = ("classifier", "score")
_MOST_MODULES, _LONGEST, _MOST_RANK = 64, 253, 1 << 31
"""Limits of facts in the status that come from an untrusted file."""


def facts_of_adapters(paths: Iterable[str], hub: Callable[[str], Hub]) -> list[dict[str, Any]]:
    """Facts about adapters, in the form of `status.model.facts.adapters`. Adapters that cannot be read are left out.

    Args:
        paths: Local folders, and repositories.
        hub: Returns the repository of a name.
    """
    return list(_facts(paths, hub))


def facts_in_folder(path: str, folder: Path) -> dict[str, Any] | None:
    """Facts about an adapter in a folder; None if its config is invalid.

    Args:
        path: Path of the adapter in the resource.
        folder: Its folder on this machine.

    Raises:
        ModelFilesError: Its config does not exist, or cannot be read.
    """
    return _known(path, read_config(folder / _CONFIG))


def _facts(paths: Iterable[str], hub: Callable[[str], Hub]) -> Iterator[dict[str, Any]]:
    for path in paths:
        try:
            found = facts_in_folder(path, Path(path)) if path.startswith("/") else _known(path, _downloaded(hub(path)))
        except (ModelError, ModelFilesError) as error:
            _LOG.warning("Cannot read the config of adapter %s: %s", path, error)
            continue
        if found is not None:
            yield found


def _known(path: str, config: dict[str, Any]) -> dict[str, Any] | None:
    rank = _rank(config)
    return None if rank is None else {"path": path, "rank": rank, **_rest(config)}


def _downloaded(hub: Hub) -> dict[str, Any]:
    listing = hub.listing()
    file = next((file for file in listing.files if file.path == _CONFIG), None)
    if file is None:
        raise ModelError("NotAnAdapter", f"The repository has no {_CONFIG}.")
    return downloaded_config(hub, file, listing.commit)


def _rank(config: Mapping[str, Any]) -> int | None:
    """The largest rank of all modules; None if the config is invalid."""
    patterns = config.get("rank_pattern") or {}
    stated = [config.get("r"), *(patterns.values() if isinstance(patterns, Mapping) else ())]
    ranks = [rank for rank in stated if isinstance(rank, int) and not isinstance(rank, bool) and rank > 0]
    return max(ranks) if len(ranks) == len(stated) and max(ranks) <= _MOST_RANK else None


def _rest(config: Mapping[str, Any]) -> dict[str, Any]:
    """All other facts. Modules are known only if they are listed: `all-linear` and patterns depend on the model."""
    modules, base = config.get("target_modules"), config.get("base_model_name_or_path")
    named = isinstance(modules, list) and all(isinstance(module, str) for module in modules)
    return {
        "modules": sorted(plain(module, _LONGEST) for module in modules)[:_MOST_MODULES] if named and modules else [],
        "base": plain(base, _LONGEST) if isinstance(base, str) else "",
        "unsupported": list(_unsupported(config)),
    }


def _unsupported(config: Mapping[str, Any]) -> Iterator[str]:
    yield from (name for name in _UNSUPPORTED if config.get(name))
    if str(config.get("bias") or "none") != "none":
        yield "bias"
    saved = config.get("modules_to_save")
    if isinstance(saved, list) and any(module not in _SAVED for module in saved):
        yield "modules_to_save"
