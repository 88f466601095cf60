"""Values that vLLM logged on H200s (benchmarks/results/memory.md), for comparison with plans."""

from dataclasses import dataclass, field

from pdinference.api.names import Role
from pdinference.memory import Inputs, RolePlan, model_facts, plan_role
from tests.memory.configs import DEEPSEEK_V2_LITE, LLAMA_8B, LLAMA_70B, MIXTRAL, QWEN_7B, Config
from tests.memory.plans import H200, plan, spec

GIB = 2**30
H100 = ["NVIDIA-H100-80GB-HBM3"]


OF_0_26: Config = {"gpuMemoryUtilization": 0.9, "kvCache": {"blockSize": 16}, "maxNumSeqs": 8}
"""Options of the runs with vLLM 0.26.0; 16 tokens are its default block. Few requests: 0.26 did not count the buffers
that its second runner has for each request, which later releases count."""


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
