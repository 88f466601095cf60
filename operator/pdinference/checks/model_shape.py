"""Fields of the spec that do not fit the shape of the model.

Tests: tests/checks/test_examine.py, tests/checks/test_plan_warnings.py
"""

from collections.abc import Iterator

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.resource import FEWER_DECODE_RANKS
from pdinference.api.validation import Problem
from pdinference.checks.options import arguments_of
from pdinference.memory import ModelFacts, split_problems

FAMILIES = {"awq_marlin": "awq", "gptq_marlin": "gptq"}
"""Quantization methods by kernel name, as spec.model.quantization may also name a kernel."""
_ONLY_READ = frozenset({"awq", "gptq", "compressed-tensors"})
"""Methods that need a quantized checkpoint. vLLM can apply the others at load time."""
_IN_CONFIG_ALONE = "compressed-tensors"
_LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def model_problems(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    """Settings that vLLM would reject at start; empty if the model's config could not be read completely."""
    if facts.unfit:
        return
    for role in ENGINE_ROLES:
        yield from split_problems(spec, role, facts)
    yield from _ranks(spec, facts)
    yield from _kinds_of_heads(spec, facts)
    yield from _experts(spec, facts)
    yield from _length(spec, facts)
    yield from _quantization(spec, facts)


def _ranks(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    if spec.transfers_kv and facts.mla is None and spec.decode.parallelism.tensor % spec.parameter.parallelism.tensor:
        yield Problem("spec.decode.parallelism.tensor", FEWER_DECODE_RANKS)


def _kinds_of_heads(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    """Layers with different numbers of KV heads, where one kind is replicated by the ranks of D and another is not.

    vLLM's NIXL connector keeps one factor for all layers (`tp_ratio` in
    vllm/distributed/kv_transfer/kv_connector/v1/nixl); vLLM's issue 50765, open.
    """
    heads = {facts.kv_shape(layer)[0] for layer in facts.attention if layer < facts.own_kv}
    of_p, of_d = (spec.of(role).parallelism.tensor for role in ENGINE_ROLES)
    if not spec.transfers_kv or facts.mla is not None or of_p == of_d or len(heads) < 2:
        return
    most = " and ".join(map(str, sorted(heads)))
    yield Problem(
        "spec.decode.parallelism.tensor",
        f"{of_d} for D and {of_p} for P. The model's layers have {most} KV heads, and vLLM ends at the first transfer "
        "between different sizes then (vLLM issue 50765). Use the same size for both roles.",
    )


def _experts(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    # `_verify_with_expert_parallelism` in vllm/config/model.py
    if not facts.architecture_known or facts.moe is not None:
        return
    for role in ENGINE_ROLES:
        if spec.of(role).parallelism.expert:
            yield Problem(f"spec.{role}.parallelism.expert", "The model is not a mixture of experts. Remove expert.")


def _length(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    """Source: `_get_and_verify_max_len` in vllm/config/model.py. Models with RoPE scaling are not checked."""
    wanted = spec.model.max_model_length
    if wanted is None or facts.max_length is None or wanted <= facts.max_length or facts.stretched:
        return
    overridden = [spec.engine.env, *(spec.of(role).env for role in (Role.PARAMETER, Role.DECODE))]
    if any(_LONGER in env for env in overridden) or any(
        "hf-overrides" in arguments for _, arguments in arguments_of(spec)
    ):
        return
    yield Problem(
        "spec.model.maxModelLength",
        f"{wanted} exceeds the maximum of {facts.max_length} positions in the model's config. Use at most "
        f"{facts.max_length}, or set {_LONGER} in spec.engine.env if the model supports more.",
    )


def _quantization(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    """Source: `_verify_quantization` in vllm/config/model.py."""
    wanted = spec.model.quantization
    if wanted is None:
        return
    method = facts.quantization.method if facts.quantization else None
    family = FAMILIES.get(wanted, wanted)
    # spec.model.architecture may be incomplete, and older AWQ and GPTQ checkpoints use a separate file.
    if method is None and family == _IN_CONFIG_ALONE and spec.model.architecture is None:
        yield Problem(
            "spec.model.quantization",
            f"The model's weights are not quantized with {wanted}. Remove quantization, or use fp8 or bitsandbytes, "
            "which quantize at load time.",
        )
    elif method in {*_ONLY_READ, "fp8"} and family != method:
        yield Problem(
            "spec.model.quantization",
            f"The model's weights are quantized with {method}, not with {wanted}. Remove quantization.",
        )
