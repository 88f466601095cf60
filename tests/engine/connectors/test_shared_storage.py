"""KV cache through files: the folder, the connector, and the behaviour of vLLM's classes with it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.command import script_program
from pdinference.engine.connectors.configuration import kv_transfer_config
from pdinference.engine.vllm import engine_command

Make = Callable[..., PDInference]
Connect = Callable[..., Any]
FILES = {"connector": "SharedStorage", "sharedStorage": {"claimName": "kv"}}
BLOCK = 4


def folder(resource: PDInference, role: Role = Role.DECODE) -> str:
    path: str = kv_transfer_config(resource, role)["kv_connector_extra_config"]["shared_storage_path"]
    return path


def test_both_roles_find_the_same_folder_by_the_same_connector(resource: Make) -> None:
    r = resource(transfer=FILES, parameter={"maxNumSeqs": 4}, decode={"maxNumSeqs": 8, "replicas": 2})
    parameter, decode = (kv_transfer_config(r, role) for role in (Role.PARAMETER, Role.DECODE))
    assert (parameter.pop("kv_role"), decode.pop("kv_role")) == ("kv_producer", "kv_consumer")
    assert parameter == decode
    assert parameter["kv_connector"] == "SharedFilesConnector"
    assert folder(r).startswith("/kv-shared/pdinference/")


def test_both_roles_get_the_module(resource: Make) -> None:
    r = resource(transfer=FILES)
    for role in (Role.PARAMETER, Role.DECODE):
        command = engine_command(r, role)
        assert command.scripts == ("with_modules", kv_transfer_config(r, role)["kv_connector_module_path"])
        assert command.program == (*script_program("with_modules"), *engine_command(resource(), role).program)


@pytest.mark.parametrize(
    "spec",
    [
        {"model": {"source": {"huggingFace": {"repository": "a/b", "revision": "v2"}}}},
        {"engine": {"kvCache": {"dtype": "fp8"}}},
        {"engine": {"args": {"hf-overrides": "{}"}}},
        {"decode": {"args": {"hf-overrides": "{}"}}},
    ],
    ids=["model", "type", "options", "options of a role"],
)
def test_what_may_change_a_block_changes_the_folder(resource: Make, spec: dict[str, Any]) -> None:
    plain = {"model": {"source": {"huggingFace": {"repository": "a/b"}}}}
    assert folder(resource(**{**plain, **spec}, transfer=FILES)) != folder(resource(**plain, transfer=FILES))


def test_replicas_and_adapters_change_nothing(resource: Make) -> None:
    model = {"source": {"path": "/models/llama"}}
    lora = {"lora": {"adapters": [{"name": "a", "path": "/a"}]}}
    more = resource(model=model | lora, decode={"replicas": 3}, transfer=FILES)
    assert folder(more) == folder(resource(model=model, transfer=FILES))


@pytest.fixture
def connect(tmp_path: Path) -> Connect:
    """A scheduler's or worker's connector; all share a folder."""
    from vllm.config import KVTransferConfig  # noqa: PLC0415
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole  # noqa: PLC0415

    from pdinference.engine.scripts.pdinference_shared_files import SharedFilesConnector  # noqa: PLC0415

    def make(path: Path = tmp_path / "same") -> Any:
        config = SimpleNamespace(
            kv_transfer_config=KVTransferConfig(
                kv_connector="SharedFilesConnector",
                kv_role="kv_both",
                kv_connector_extra_config={"shared_storage_path": str(path)},
            ),
            cache_config=SimpleNamespace(block_size=BLOCK),
        )
        return SharedFilesConnector(config, KVConnectorRole.SCHEDULER, None)

    return make


class Pod:
    """One vLLM, as far as a connector sees it: its scheduler, and the KV cache of two layers."""

    def __init__(self, connector: Any) -> None:
        """Begin with an empty cache of 16 blocks."""
        import torch  # noqa: PLC0415

        self.connector = connector
        self.layers = {name: torch.zeros(16, 2, BLOCK, 6) for name in ("first", "second")}

    def step(self, *requests: Any, write: bool = True) -> tuple[list[int], set[int]]:
        """Run a step of new requests: how many tokens each found, and the blocks that could not be loaded."""
        found = []
        for request in requests:
            count, later = self.connector.get_num_new_matched_tokens(request, 0)
            self.connector.update_state_after_alloc(request, None, count)
            found.append(count)
            assert not later
        scheduled = SimpleNamespace(scheduled_new_reqs=list(requests))
        self.connector.bind_connector_metadata(self.connector.build_connector_meta(scheduled))
        layers = {name: SimpleNamespace(kv_cache=cache) for name, cache in self.layers.items()}
        self.connector.start_load_kv(SimpleNamespace(attn_metadata=dict.fromkeys(layers), no_compile_layers=layers))
        for name, cache in self.layers.items() if write else ():
            self.connector.save_kv_layer(name, cache, None)
        if write:
            self.connector.wait_for_save()
        return found, self.connector.get_block_ids_with_load_errors()

    def computes(self, *requests: Any) -> None:
        """Fill the blocks of requests with what only this request has, and store them."""
        import torch  # noqa: PLC0415

        for request in requests:
            for cache in self.layers.values():
                cache[request.block_ids[0]] = torch.rand(cache[request.block_ids[0]].shape)
        self.step(*requests)


def asked(tokens: range | list[int], blocks: list[int], lora: str = "", preemptions: int = 0) -> Any:
    """A request, both as the scheduler has it and as it tells the connector."""
    return SimpleNamespace(
        request_id=str(blocks),
        req_id=str(blocks),
        prompt_token_ids=list(tokens),
        block_ids=(blocks,),
        mm_features=[],
        num_preemptions=preemptions,
        lora_request=SimpleNamespace(lora_name=lora, lora_path=f"/{lora}") if lora else None,
    )


def holds(pod: Pod, blocks: list[int], other: Pod, others: list[int]) -> bool:
    return all(bool((pod.layers[name][blocks] == other.layers[name][others]).all()) for name in pod.layers)


@pytest.mark.vllm
@pytest.mark.parametrize(("length", "whole"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (10, 8), (12, 8), (13, 12)])
def test_d_loads_all_whole_blocks_but_leaves_a_token_to_compute(connect: Connect, length: int, whole: int) -> None:
    p, d = Pod(connect()), Pod(connect())
    p.computes(asked(range(length), [5, 2, 7, 1]))
    found, failed = d.step(asked(range(length), [9, 3, 4, 8]))
    assert (found, failed) == ([whole], set())
    count = whole // BLOCK
    assert holds(d, [9, 3, 4, 8][:count], p, [5, 2, 7, 1][:count])
    assert not d.layers["second"][[9, 3, 4, 8][count:]].any()


@pytest.mark.vllm
def test_a_prompt_that_only_begins_like_a_stored_one_is_computed(connect: Connect) -> None:
    """vLLM's example takes the shorter one's folder for it, finds no file, and dies; P as well as D."""
    p, d = Pod(connect()), Pod(connect())
    p.computes(asked(range(6), [1, 2]))
    assert d.step(asked(range(9), [3, 4, 5])) == ([0], set())


@pytest.mark.vllm
def test_an_adapters_prompt_is_not_the_base_models(connect: Connect) -> None:
    p, d = Pod(connect()), Pod(connect())
    p.computes(asked(range(9), [1, 2, 3]))
    p.computes(asked(range(9), [4, 5, 6], lora="sql"))
    d.step(asked(range(9), [1, 2, 3]), asked(range(9), [4, 5, 6], lora="sql"))
    assert holds(d, [1, 2, 4, 5], p, [1, 2, 4, 5])
    assert not holds(d, [1, 2], p, [4, 5])
    assert d.step(asked(range(9), [7, 8, 9], lora="other")) == ([0], set())


@pytest.mark.vllm
@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(b"torn")])
def test_a_file_that_is_gone_or_torn_costs_its_request_alone(
    connect: Connect, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    p, d = Pod(connect()), Pod(connect())
    bad, good = asked(range(9), [1, 2, 3]), asked(range(20, 29), [4, 5, 6])
    p.computes(bad)
    harm(next((tmp_path / "same").glob("*/second*")))
    p.computes(good)
    assert d.step(bad, good) == ([8, 8], {1, 2})
    assert holds(d, [4, 5], p, [4, 5])
    assert d.step() == ([], set()), "it is told once"
    p.computes(bad)
    assert d.step(bad) == ([8], set()), "what was harmed is stored anew"


@pytest.mark.vllm
def test_a_p_that_dies_while_it_writes_leaves_nothing_that_d_believes(connect: Connect) -> None:
    p, d = Pod(connect()), Pod(connect())
    p.step(asked(range(9), [1, 2, 3]), write=False)
    p.connector.save_kv_layer("first", p.layers["first"], None)
    assert d.step(asked(range(9), [1, 2, 3])) == ([0], set())


@pytest.mark.vllm
def test_two_pods_may_store_the_same_prompt_at_once(connect: Connect, tmp_path: Path) -> None:
    one, two, d = Pod(connect()), Pod(connect()), Pod(connect())
    for pod in (one, two):
        pod.step(asked(range(9), [1, 2, 3]), write=False)
    for pod in (one, two):
        for name, cache in pod.layers.items():
            pod.connector.save_kv_layer(name, cache, None)
    for pod in (one, two):
        pod.connector.wait_for_save()
    assert d.step(asked(range(9), [1, 2, 3])) == ([8], set())
    assert len(list((tmp_path / "same").iterdir())) == 1


@pytest.mark.vllm
def test_a_volume_that_takes_nothing_does_not_stop_vllm(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    p = Pod(connect(tmp_path / "file"))
    p.computes(asked(range(9), [1, 2, 3]))
    assert p.step(asked(range(9), [1, 2, 3])) == ([0], set())


@pytest.mark.vllm
def test_a_preempted_request_is_computed(connect: Connect) -> None:
    """It has more to restore than its prompt; vLLM's example looks for files that nobody wrote, and dies."""
    pod = Pod(connect())
    pod.computes(asked(range(9), [1, 2, 3]))
    assert pod.connector.get_num_new_matched_tokens(asked(range(9), [1, 2, 3], preemptions=1), 0) == (0, False)


@pytest.mark.vllm
def test_what_was_not_used_for_long_goes(connect: Connect, tmp_path: Path) -> None:
    import os  # noqa: PLC0415

    from pdinference.engine.scripts.pdinference_shared_files import sweep  # noqa: PLC0415

    p, d = Pod(connect()), Pod(connect())
    p.computes(asked(range(9), [1, 2, 3]))
    p.computes(asked(range(20, 29), [4, 5, 6]))
    abandoned = tmp_path / "earlier-revision" / ".half"
    abandoned.mkdir(parents=True)
    for path in (*(tmp_path / "same").iterdir(), abandoned):
        os.utime(path, (1000, 1000))
    d.step(asked(range(20, 29), [4, 5, 6]))
    sweep(tmp_path, 2000)
    assert not abandoned.exists()
    assert d.step(asked(range(9), [1, 2, 3]), asked(range(20, 29), [4, 5, 6])) == ([0, 8], set())


def test_shared_storage_goes_without_what_its_connector_cannot(resource: Make) -> None:
    for role in (Role.PARAMETER, Role.DECODE):
        arguments = engine_command(resource(transfer=FILES), role).arguments
        assert {"--no-enable-prefix-caching", "--no-enable-chunked-prefill"} <= set(arguments)
        limits = [argument for argument in arguments if argument.startswith("--max-num-batched-tokens")]
        assert limits == [], "vLLM takes the longest prompt, and refuses less"
