"""KV cache through files on a shared volume: vLLM's example of such a connector, made fit for more than trying it.

The example takes a folder that exists for a prompt that is stored, dies of a file that is missing, looks for another
number of tokens than it stored when a prompt is one token longer than its blocks, knows prompts by their tokens alone
(a LoRA adapter would read the base model's), and deletes nothing. Its reading and writing of a layer are sound.

Tests: tests/engine/connectors/test_shared_storage.py
"""

import contextlib
import logging
import os
import shutil
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import (
    ExampleConnector,
    ExampleConnectorMetadata,
    ReqMeta,
    align_to_block_size,
)

log = logging.getLogger(f"vllm.{__name__}")

KEPT_SECONDS = 900
"""How long the files of a prompt stay after their last use; D asks for them within moments."""
_SWEEP_SECONDS = 60


class SharedFilesConnector(ExampleConnector):
    """A prompt's whole blocks are a folder, which appears when it is complete and goes when nobody used it for long."""

    _storage_path: str

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        """Begin as P or as D: both store what is missing, and load what is there."""
        super().__init__(vllm_config, role, kv_cache_config)
        self._unfinished = Path(self._storage_path, f".{uuid.uuid4().hex}")
        self._torn = False
        self._not_loaded: set[int] = set()
        if role is KVConnectorRole.WORKER:
            threading.Thread(target=_sweep_forever, args=(Path(self._storage_path).parent,), daemon=True).start()

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Say how many tokens of a request can be loaded; a preempted one has more to compute than its prompt."""
        tokens = request.prompt_token_ids or []
        whole = align_to_block_size(len(tokens), self._block_size)
        if request.num_preemptions or whole <= num_computed_tokens or not self._stored(tokens, _also(request)):
            return 0, False
        return whole - num_computed_tokens, False

    def build_connector_meta(self, scheduler_output: Any) -> ExampleConnectorMetadata:
        """Say what the worker loads and stores in this step."""
        meta = ExampleConnectorMetadata()
        for request in scheduler_output.scheduled_new_reqs:
            tokens, also = request.prompt_token_ids or [], _also(request)
            load = request.req_id in self._requests_need_load
            whole = align_to_block_size(len(tokens), self._block_size)
            if load or (whole > 0 and not self._stored(tokens, also)):
                meta.add_request(tokens, request.block_ids[0], self._block_size, not load, also)
        self._requests_need_load.clear()
        return meta

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Load each request for itself, so that one whose files are gone is computed, and the others are not."""
        metadata: Any = self._get_connector_metadata()
        for request in metadata.requests:
            if request.is_store:
                continue
            self.bind_connector_metadata(ExampleConnectorMetadata([request]))
            try:
                super().start_load_kv(forward_context, **kwargs)
            except (OSError, SafetensorError, RuntimeError) as error:
                log.warning("KV cache of %d tokens could not be read: %s", len(request.token_ids), error)
                self._not_loaded |= set((request.slot_mapping // self._block_size).tolist())
                shutil.rmtree(self._folder(request), ignore_errors=True)
        self.bind_connector_metadata(metadata)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Tell the scheduler once which blocks hold nothing."""
        failed, self._not_loaded = self._not_loaded, set()
        return failed

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Write a layer to where nobody looks for it yet; a volume that is full must not stop vLLM."""
        if self._torn:
            return
        shared, self._storage_path = self._storage_path, str(self._unfinished)
        try:
            super().save_kv_layer(layer_name, kv_layer, attn_metadata, **kwargs)
        except (OSError, SafetensorError) as error:
            log.warning("KV cache could not be written, D will compute it: %s", error)
            self._torn = True
        finally:
            self._storage_path = shared

    def wait_for_save(self) -> None:
        """Let the prompts of this step appear, each with all its layers."""
        if self._unfinished.exists():
            for folder in () if self._torn else self._unfinished.iterdir():
                # Another pod may have been quicker with the same prompt.
                with contextlib.suppress(OSError):
                    folder.rename(Path(self._storage_path, folder.name))
            shutil.rmtree(self._unfinished, ignore_errors=True)
        self._torn = False

    def _stored(self, tokens: list[int], also: list[str]) -> bool:
        """Whether a prompt's blocks are there; then they stay for a while."""
        whole = torch.tensor(tokens)[: align_to_block_size(len(tokens), self._block_size)]
        try:
            os.utime(self._generate_foldername_debug(whole, also))
        except OSError:
            return False
        return True

    def _folder(self, request: ReqMeta) -> Path:
        return Path(self._generate_foldername_debug(request.token_ids, request.mm_hashes))


def _also(request: Any) -> list[str]:
    """What tells apart prompts of the same tokens: pictures, as in the example, and LoRA adapters."""
    lora = request.lora_request
    pictures = [feature.identifier for feature in request.mm_features]
    return pictures if lora is None else [*pictures, f"lora:{lora.lora_name}:{lora.lora_path}"]


def _sweep_forever(root: Path) -> None:
    while True:
        time.sleep(_SWEEP_SECONDS)
        sweep(root, time.time() - KEPT_SECONDS)


def sweep(root: Path, oldest: float) -> None:
    """Delete prompts that were last used before a time, whichever revision or pod stored them.

    Args:
        root: Folder of folders of prompts.
        oldest: The time, in seconds since the epoch.
    """
    for folder in root.glob("*/*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder)
