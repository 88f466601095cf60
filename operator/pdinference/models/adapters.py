"""Collects facts about LoRA adapters from their adapter_config.json."""

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
"""Of what a status takes in of a file that anybody may have written."""


def facts_of_adapters(paths: Iterable[str], hub: Callable[[str], Hub]) -> list[dict[str, Any]]:
    """What is known of each, in the form of `status.model.facts.adapters`; one that cannot be read is left out.

    Args:
        paths: Folders that are here, and repositories.
        hub: From the name of a repository to the repository.
    """
    return list(_facts(paths, hub))


def facts_in_folder(path: str, folder: Path) -> dict[str, Any] | None:
    """The same of one adapter whose files are in a folder; None when its config makes no sense.

    Args:
        path: How the resource calls it.
        folder: Where it is on this machine.

    Raises:
        ModelFilesError: Its config is not there, or cannot be read.
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
    """The largest of all modules; None when the config makes no sense."""
    patterns = config.get("rank_pattern") or {}
    stated = [config.get("r"), *(patterns.values() if isinstance(patterns, Mapping) else ())]
    ranks = [rank for rank in stated if isinstance(rank, int) and not isinstance(rank, bool) and rank > 0]
    return max(ranks) if len(ranks) == len(stated) and max(ranks) <= _MOST_RANK else None


def _rest(config: Mapping[str, Any]) -> dict[str, Any]:
    """Modules are known when they are listed: `all-linear` and patterns say nothing without the model."""
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
