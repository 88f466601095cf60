"""`spec.engine` and the engine options of each role: image, vLLM options and environment.

Tests: tests/api/test_validation.py, tests/checks/test_options.py
"""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from pdinference.api.v1alpha1.base import ApiModel, AsJson, ImageReference, Matches, Quantity, Rule
from pdinference.api.v1alpha1.compile_cache import CompileCache
from pdinference.api.v1alpha1.connectors import CONNECTOR_ENVIRONMENT
from pdinference.api.v1alpha1.experts import ExpertBalance, ExpertTransport

OWNED_ARGUMENTS: dict[str, str] = {
    "model": "use spec.model.source",
    "revision": "use spec.model.source.huggingFace.revision",
    "tokenizer-revision": "use spec.model.source.huggingFace.revision",
    "hf-token": "use spec.model.source.huggingFace.tokenSecret",
    "served-model-name": "use spec.model.name",
    "tensor-parallel-size": "use parallelism.tensor of the role",
    "pipeline-parallel-size": "use parallelism.pipeline of the role",
    "data-parallel-size": "use parallelism.data of the role",
    "nnodes": "use spec.parameter.parallelism.nodes",
    "enable-expert-parallel": "use parallelism.expert of the role",
    "kv-transfer-config": "use spec.transfer",
    "host": "pods listen on all addresses, and a NetworkPolicy restricts access",
    "port": "use spec.router.service.port",
    "shutdown-timeout": "use spec.rollout.drainSeconds",
    "config": "use spec.engine.args",
    "dtype": "use spec.model.dtype",
    "quantization": "use spec.model.quantization",
    "max-model-len": "use spec.model.maxModelLength",
    "chat-template": "use spec.model.chatTemplate",
    "tokenizer": "use spec.model.tokenizer",
    "override-generation-config": "use spec.model.generationDefaults",
    "trust-remote-code": "use spec.model.trustRemoteCode",
    "enable-lora": "use spec.model.lora",
    "lora-modules": "use spec.model.lora.adapters",
    "max-lora-rank": "use spec.model.lora.maxRank",
    "max-loras": "use spec.model.lora.maxActive",
    "kv-cache-dtype": "use spec.engine.kvCache.dtype",
    "block-size": "use spec.engine.kvCache.blockSize",
    "max-num-seqs": "use maxNumSeqs beside args",
    "max-num-batched-tokens": "use maxNumBatchedTokens beside args",
    "gpu-memory-utilization": "use gpuMemoryUtilization beside args",
    "enable-chunked-prefill": "use enableChunkedPrefill beside args",
    "enable-prefix-caching": "use enablePrefixCaching beside args",
    "enforce-eager": "use enforceEager beside args",
    "cpu-offload-gb": "use cpuOffload beside args",
    "seed": "use seed beside args",
}
"""vLLM options that the operator sets, each with the field to use instead or the reason."""

OWNED_ENVIRONMENT: dict[str, str] = {
    "POD_IP": "the operator sets it to the address of the pod",
    **CONNECTOR_ENVIRONMENT,
    "VLLM_SERVER_DEV_MODE": "it opens endpoints that reset and control the engine",
    "HF_TOKEN": "use spec.model.source.huggingFace.tokenSecret",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "use spec.model.lora.dynamicLoading",
    "VLLM_LOGGING_LEVEL": "use logLevel beside env",
    "VLLM_PP_LAYER_PARTITION": "use parallelism.layerPartition of the role",
    "VLLM_API_KEY": "everyone who can read the resource could read the key",
}
"""Environment variables that the operator sets or rejects, each with the field to use instead or the reason."""


def _owned(names: Iterable[str], owned: dict[str, str]) -> str:
    return " ".join(f"{name} cannot be set here: {owned[name]}." for name in sorted(names))


def _cel_identifier(name: str) -> str:
    """A member name with dashes, as CEL writes it."""
    return name.replace("-", "__dash__")


def _scalar_or_json(value: object) -> object:
    if value is None:
        raise ValueError("null is not a valid value. Remove the option, or use true or false for a switch.")
    if isinstance(value, list) and any(isinstance(item, str) and item.startswith("-") for item in value):
        raise ValueError("An item of a list must not start with a dash: vLLM would read it as another option.")
    return value


ArgumentName = Annotated[
    str,
    Field(max_length=63),
    Matches(
        "^[a-z][a-z0-9]*(-[a-z0-9]+)*$",
        "Write the long name of an option in lower case without leading dashes, for example max-num-seqs.",
    ),
]
ArgumentValue = Annotated[
    Any,
    BeforeValidator(_scalar_or_json),
    AsJson,
]
"""Text, number, true (`--name`), false (`--no-name`), a list (`--name a b`) or an object (passed as JSON)."""

_ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
_ARGUMENTS_SCHEMA = {
    "type": "object",
    "maxProperties": 64,
    **_ANYTHING,
    # CEL reads only members that the schema declares with a type. The schema declares the rejected options, so that
    # the message of the API server names the field to use instead. All other options may have any value.
    "properties": {
        name: {"description": f"Rejected: {advice}."}
        | ({"type": "object", **_ANYTHING} if name == "kv-transfer-config" else {"x-kubernetes-int-or-string": True})
        for name, advice in OWNED_ARGUMENTS.items()
    },
    "x-kubernetes-validations": [
        {"rule": f"!has(self.{_cel_identifier(name)})", "message": _owned([name], OWNED_ARGUMENTS)}
        for name in OWNED_ARGUMENTS
    ],
}


def _none_owned(arguments: dict[str, Any]) -> dict[str, Any]:
    if refused := OWNED_ARGUMENTS.keys() & arguments.keys():
        raise ValueError(_owned(refused, OWNED_ARGUMENTS))
    return arguments


Arguments = Annotated[
    dict[ArgumentName, ArgumentValue],
    Field(max_length=64),
    AfterValidator(_none_owned),
    WithJsonSchema(_ARGUMENTS_SCHEMA),
]
EnvironmentName = Annotated[
    str,
    Field(max_length=128),
    Matches(
        "^[A-Za-z_][A-Za-z0-9_]*$",
        "Write a variable name: letters, digits and underscores, not starting with a digit.",
    ),
]
Environment = Annotated[dict[EnvironmentName, Annotated[str, Field(max_length=4096)]], Field(max_length=64)]


def _refused_variable(name: str) -> Rule:
    def absent(options: "EngineOptions") -> bool:
        return name not in options.env

    return Rule(
        cel=f"!has(self.env) || !('{name}' in self.env)",
        holds=absent,
        field="env",
        message=_owned([name], OWNED_ENVIRONMENT),
    )


class EngineOptions(ApiModel):
    """vLLM options and environment of one role. They override those of `spec.engine`."""

    max_num_seqs: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Maximum number of requests that an instance runs at a time."""
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=16777216)] | None = None
    """Maximum number of tokens in one engine step: high for long prompts in P, low for even latency in D."""
    gpu_memory_utilization: Annotated[float, Field(ge=0.01, le=1)] | None = None
    """Fraction of each GPU's memory that vLLM uses, for example 0.85."""
    enable_chunked_prefill: bool | None = None
    """Whether vLLM prefills long prompts in chunks."""
    enable_prefix_caching: bool | None = None
    """Whether vLLM reuses the KV cache of common prompt prefixes."""
    enforce_eager: bool | None = None
    """Disables CUDA graphs and compilation: a faster start, less memory, slower generation."""
    cpu_offload: Quantity | None = None
    """Size of the weights to keep in CPU memory, for each GPU. It slows vLLM down considerably."""
    expert_transport: ExpertTransport | None = None
    """How tokens get to experts on other devices, with parallelism.expert and data above 1. auto: as vLLM's guide
    advises for the role, the product and several nodes. Default: vLLM's, which works anywhere."""
    seed: Annotated[int, Field(ge=0, le=4294967295)] | None = None
    """Random seed of vLLM."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] | None = None
    """Log level of vLLM."""
    args: Arguments = Field(default_factory=dict)
    """vLLM options by their long name without leading dashes, for example `max-num-seqs: 64` or `enforce-eager: true`.
    A list becomes several values, an object becomes JSON, and false becomes `--no-<name>`."""
    env: Environment = Field(default_factory=dict)
    """Environment variables of the vLLM container. For secrets, use a field that takes a Secret reference."""

    rules: ClassVar[tuple[Rule, ...]] = tuple(_refused_variable(name) for name in OWNED_ENVIRONMENT)


class KVCache(ApiModel):
    """Format of the KV cache. KV transfer requires the same format in P and D."""

    dtype: Literal["auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2"] = "auto"
    """Data type of the KV cache. auto: the data type of the model. An fp8 type doubles the number of tokens that fit
    the same memory."""
    block_size: Literal[1, 8, 16, 32, 64, 128, 256] | None = None
    """Tokens in a KV block. Large blocks transfer faster from P to D."""


VllmVersion = Annotated[
    str,
    Field(max_length=32),
    Matches(r"^\d+\.\d+\.\d+$", "Write a release: 0.33.0."),
]


class Engine(EngineOptions):
    """Settings of vLLM for both roles. P and D share one image: KV transfer can fail between vLLM versions."""

    image: ImageReference = "docker.io/vllm/vllm-openai:v0.33.0"
    """Image with vLLM, its OpenAI-compatible server and NIXL. For CPU, build images/vllm-cpu."""
    version: VllmVersion | None = None
    """vLLM release in the image, for example 0.33.0. It decides which `args` are valid. Default: that of the tag."""
    kv_cache: KVCache = Field(default_factory=KVCache)
    """Format of the KV cache."""
    expert_balance: ExpertBalance | None = None
    """Copies of the experts that get the most tokens, for roles with parallelism.expert. Default: none."""
    compile_cache: CompileCache | None = None
    """Keeps what vLLM compiles, so that later starts of a pod take less time. Default: each pod compiles anew."""
    startup_seconds: Annotated[int, Field(ge=60, le=86400)] | None = None
    """Maximum time, in seconds, for a pod to load the model; then it is restarted. Default: 3600, or more if reading
    model.architecture.weightsBytes at 50 MB/s takes longer."""
