"""The plan compared with logs of vLLM on H200s (benchmarks/results/memory.md)."""

import pytest

from pdinference.memory.activations import graph_bytes
from tests.memory.configs import LLAMA_8B, QWEN_7B, Config
from tests.memory.logged import CAPACITIES, GIB, H100, ROWS, Capacity, Row
from tests.memory.plans import known, plan


@pytest.mark.parametrize("row", ROWS, ids=["llama-8192", "llama-2048", "qwen-8192"])
def test_rows_of_the_h200(row: Row) -> None:
    made = row.planned
    stage = made.stage
    assert known(stage.weights.value) / GIB == pytest.approx(row.weights, rel=0.005)
    assert known(stage.activations.value) / GIB == pytest.approx(row.activations, abs=0.04)
    assert known(stage.overhead.value) / GIB == pytest.approx(0.22, abs=0.005)
    assert known(stage.kv_cache.value) / GIB == pytest.approx(row.kv_cache, rel=0.001)
    assert stage.kv_bytes_per_token.value == row.token_bytes
    assert made.tokens.value == pytest.approx(row.tokens, rel=0.001)
    assert made.concurrency.value == pytest.approx(row.concurrency, rel=0.001)


@pytest.mark.parametrize("row", CAPACITIES.values(), ids=CAPACITIES)
def test_capacities_of_one_and_two_h200(row: Capacity) -> None:
    made = row.planned
    # vLLM's log counts as weights what PyTorch adds for two ranks to talk (0.06 GiB), and scales of FP8 KV (0.08).
    assert known(made.stage.weights.value) / GIB == pytest.approx(row.weights, rel=0.003, abs=0.09)
    assert known(made.stage.kv_cache.value) / GIB == pytest.approx(row.kv_cache, rel=0.005)
    assert made.tokens.value == pytest.approx(row.tokens, rel=0.005)


@pytest.mark.parametrize(("batched", "kv_cache", "tokens"), [(8192, 14.53, 237_952), (2048, 15.16, 248_320)])
def test_capacity_of_one_h100_with_vllm_0_32(batched: int, kv_cache: float, tokens: int) -> None:
    """Half of the layers of Llama 8B and a vocabulary of 259, eager, in blocks of 128 tokens."""
    config = LLAMA_8B | {"num_hidden_layers": 16, "vocab_size": 259, "max_position_embeddings": 16384}
    engine = {"gpuMemoryUtilization": 0.28, "maxNumBatchedTokens": batched}
    made = plan(
        config,
        model={"source": {"path": "/models/any"}, "maxModelLength": 16384},
        engine=engine,
        accelerator={"products": H100},
    )
    assert known(made.stage.weights.value) / GIB == pytest.approx(6.51, abs=0.02)
    assert known(made.stage.kv_cache.value) / GIB == pytest.approx(kv_cache, rel=0.005)
    assert made.tokens.value == pytest.approx(tokens, rel=0.005)


@pytest.mark.parametrize(
    ("config", "batched", "requests", "tensor", "logged"),
    [(LLAMA_8B, 8192, 256, 1, 0.59), (LLAMA_8B, 8192, 256, 2, 0.51), (QWEN_7B, 2048, 512, 1, 0.89)],
)
def test_cuda_graphs_of_one_and_two_h200(
    config: Config, batched: int, requests: int, tensor: int, logged: float
) -> None:
    """vLLM 0.26.0 captured after it had sized the KV cache; 0.32 subtracts its own estimate first."""
    engine = {"maxNumBatchedTokens": batched, "maxNumSeqs": requests}
    made = plan(config, engine={**engine, "enforceEager": False}, parallelism={"tensor": tensor})
    assert graph_bytes(made.facts, made.settings, 0) / GIB == pytest.approx(logged, rel=0.35)
