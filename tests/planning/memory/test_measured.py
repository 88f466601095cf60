"""The plan against what vLLM logged on H200s (docs/memory.md)."""

from dataclasses import dataclass, field

import pytest

from pdinference.api.names import Role
from pdinference.planning.memory import Inputs, RolePlan, model_facts, plan_role
from tests.planning.memory.configs import DEEPSEEK_V2_LITE, LLAMA_8B, LLAMA_70B, MIXTRAL, QWEN_7B, Config
from tests.planning.memory.plans import H200, known, plan, spec

GIB = 2**30
H100 = ["NVIDIA-H100-80GB-HBM3"]
OF_0_26: Config = {"gpuMemoryUtilization": 0.9, "kvCache": {"blockSize": 16}}
"""Options of the runs with vLLM 0.26.0; 16 tokens are its default block."""


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

    @property
    def planned(self) -> RolePlan:
        return plan(self.config, engine={**OF_0_26, "maxNumBatchedTokens": self.batched_tokens})


ROWS = [
    Row(LLAMA_8B, 8192, 14.97, 0.88, 109.76, 131072, 899_104, 109.75),
    Row(LLAMA_8B, 2048, 14.97, 0.30, 110.33, 131072, 903_808, 110.33),
    Row(QWEN_7B, 8192, 14.29, 1.12, 110.19, 57344, 2_063_216, 251.86),
]


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


HALF_MIXTRAL = MIXTRAL | {"num_hidden_layers": 16}


@dataclass(frozen=True)
class Capacity:
    """vLLM 0.26.0, dummy weights, eager, utilization 0.9, longest request 8,192 tokens, 8,192 tokens a step."""

    config: Config
    weights: float
    kv_cache: float
    tokens: int
    engine: Config = field(default_factory=dict)
    parallelism: Config = field(default_factory=dict)
    """Of P where it has pipeline stages, else of D."""

    @property
    def planned(self) -> RolePlan:
        engine = {**OF_0_26, "maxNumBatchedTokens": 8192, **self.engine}
        if "pipeline" not in self.parallelism:
            return plan(self.config, engine=engine, parallelism=self.parallelism)
        parameter = {"accelerator": {"products": H200}, "parallelism": self.parallelism}
        return plan_role(Inputs(spec(engine=engine, parameter=parameter), model_facts(self.config)), Role.PARAMETER)


CAPACITIES = {
    "llama-fp8-kv": Capacity(LLAMA_8B, 15.04, 109.69, 1_797_072, engine={"kvCache": {"dtype": "fp8", "blockSize": 16}}),
    "llama-4096": Capacity(LLAMA_8B, 15.0, 110.14, 902_240, engine={"maxNumBatchedTokens": 4096}),
    "llama-16384": Capacity(LLAMA_8B, 15.0, 108.87, 891_872, engine={"maxNumBatchedTokens": 16384}),
    "experts": Capacity(HALF_MIXTRAL, 43.75, 79.98, 1_310_400),
    "mla": Capacity(DEEPSEEK_V2_LITE, 29.32, 95.14, 3_284_464),
    "llama-tp2": Capacity(LLAMA_8B, 7.54, 117.51, 1_925_232, parallelism={"tensor": 2}),
    "llama-70b-tp2": Capacity(LLAMA_70B, 65.74, 58.95, 386_352, parallelism={"tensor": 2}),
    "experts-ep2": Capacity(HALF_MIXTRAL, 21.88, 102.01, 3_342_528, parallelism={"tensor": 2, "expert": True}),
    "llama-pp2": Capacity(LLAMA_8B, 7.53, 117.36, 1_922_752, parallelism={"pipeline": 2}),
}


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
    config = LLAMA_8B | {"num_hidden_layers": 16, "vocab_size": 259}
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
    eager = plan(config, engine=engine, parallelism={"tensor": tensor}).stage.overhead.value
    graphs = plan(config, engine={**engine, "enforceEager": False}, parallelism={"tensor": tensor}).stage.overhead.value
    assert (known(graphs) - known(eager)) / GIB == pytest.approx(logged, abs=0.35)
