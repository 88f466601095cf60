"""Facts about LoRA adapters on this machine: in folders, and in the cache of the hub's client.

Tests: tests/cli/test_adapters.py
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.source import ModelSource
from pdinference.models.adapters import facts_in_folder
from pdinference.models.errors import ModelFilesError
from pdinference.models.files.paths import is_within
from pdinference.regular_files import read_regular

_LONGEST_COMMIT = 255


def local_facts(resource: PDInference) -> dict[str, Any] | None:
    """Facts in the form of `status.model`; None if there are none. Makes no network requests."""
    if resource.spec.model.lora is None:
        return None
    source = resource.spec.model.source
    paths = [adapter.path for adapter in resource.spec.model.lora.adapters]
    adapters = [facts for path in paths if (facts := _facts(path, source)) is not None]
    return {"facts": {"source": source.identity(), "adapters": adapters}} if adapters else None


def _facts(path: str, source: ModelSource) -> dict[str, Any] | None:
    for folder in _folders(path, source):
        try:
            return facts_in_folder(path, folder)
        except ModelFilesError:  # the adapter may exist on the nodes of the pods
            continue
    return None


def _folders(path: str, source: ModelSource) -> Iterator[Path]:
    if path.startswith("/"):
        yield Path(path)
    elif source.model_scope is None:  # vLLM downloads adapters from the hub of the model
        kept = cache_of_hub() / f"models--{path.replace('/', '--')}"
        head = kept / "refs" / "main"
        with suppress(OSError, UnicodeDecodeError):
            commit = read_regular(head, _LONGEST_COMMIT).decode().strip()
            if is_within(commit) and "/" not in commit:
                yield kept / "snapshots" / commit


def cache_of_hub() -> Path:
    """The cache folder of the client of the Hugging Face hub, which may be installed in another environment only."""
    home = os.getenv("HF_HOME") or Path(os.getenv("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    folder = os.getenv("HF_HUB_CACHE") or os.getenv("HUGGINGFACE_HUB_CACHE") or Path(home, "hub")
    return Path(os.path.expandvars(folder)).expanduser()
