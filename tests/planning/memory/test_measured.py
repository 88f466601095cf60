"""The plan against what vLLM logged on one H200 (docs/memory.md)."""

from dataclasses import dataclass

import pytest

from tests.planning.memory.configs import LLAMA_8B, QWEN_7B, Config
from tests.planning.memory.plans import known, plan

GIB = 2**30


@dataclass(frozen=True)
class Row:
    config: Config
    batched_tokens: int
    weights: float
    activations: float
    kv_cache: float
    token_bytes: int
    tokens: int
    concurrency: float


ROWS = [
    Row(LLAMA_8B, 8192, 14.97, 0.88, 109.76, 131072, 899_104, 109.75),
    Row(LLAMA_8B, 2048, 14.97, 0.30, 110.33, 131072, 903_808, 110.33),
    Row(QWEN_7B, 8192, 14.29, 1.12, 110.19, 57344, 2_063_216, 251.86),
]


@pytest.mark.parametrize("row", ROWS, ids=["llama-8192", "llama-2048", "qwen-8192"])
def test_rows_of_the_h200(row: Row) -> None:
    engine = {"gpuMemoryUtilization": 0.9, "maxNumBatchedTokens": row.batched_tokens}
    made = plan(row.config, engine=engine)
    stage = made.stage
    assert known(stage.weights.value) / GIB == pytest.approx(row.weights, rel=0.005)
    assert known(stage.activations.value) / GIB == pytest.approx(row.activations, abs=0.04)
    assert known(stage.overhead.value) / GIB == pytest.approx(0.22, abs=0.005)
    assert known(stage.kv_cache.value) / GIB == pytest.approx(row.kv_cache, rel=0.001)
    assert stage.kv_bytes_per_token.value == row.token_bytes
    assert made.tokens.value == pytest.approx(row.tokens, rel=0.001)
    assert made.concurrency.value == pytest.approx(row.concurrency, rel=0.001)
