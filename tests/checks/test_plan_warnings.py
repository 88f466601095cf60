"""Warnings and errors that follow from the memory plan and the model's heads."""

import json
from pathlib import Path

import pytest

from benchmarks.memory_plan.logged import starts
from pdinference.checks.model_shape import model_problems
from pdinference.checks.plan_warnings import plan_warnings
from pdinference.memory import Inputs, model_facts, plan_role
from tests.memory.configs import LLAMA_8B, Config
from tests.memory.plans import H200, spec

HYBRID = next(start.config for start in starts() if start.name == "qwen3.8-27b-a100-0.28")
TWO_KINDS: Config = {
    "model_type": "gemma4_text", "vocab_size": 262144, "hidden_size": 2816, "intermediate_size": 2112,
    "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 2,
    "attention_k_eq_v": True, "head_dim": 256, "global_head_dim": 512, "sliding_window": 1024,
    "layer_types": [*["sliding_attention"] * 5, "full_attention"], "max_position_embeddings": 8192,
}  # fmt: skip


def warned(config: Config, **changes: Config) -> list[str]:
    stated = spec(**changes)
    inputs = Inputs(stated, model_facts(config))
    return [str(problem) for problem in plan_warnings({role: plan_role(inputs, role) for role in stated.engine_roles})]


def test_more_requests_than_blocks_for_states_are_warned_of_with_the_largest_number() -> None:
    engine = {"enforceEager": False, "maxNumSeqs": 1024}
    role = {"accelerator": {"products": ["NVIDIA-A100-SXM4-80GB"]}}
    found = warned(HYBRID, engine=engine, parameter=role, **role)
    assert len(found) == 2
    assert "spec.decode.maxNumSeqs" in found[1]
    largest = int(found[1].rpartition("at most ")[2].rstrip(".").replace(",", ""))
    assert warned(HYBRID, engine=engine | {"maxNumSeqs": largest}, parameter=role, **role) == []
    assert warned(LLAMA_8B, engine=engine, parameter=role, **role) == []


def test_a_draft_that_is_not_counted_is_warned_of_with_what_is_missing() -> None:
    args = {"args": {"speculative-config": {"method": "eagle3", "num_speculative_tokens": 3}}}
    role: Config = {"accelerator": {"products": H200}, "parallelism": {"tensor": 2}}
    found = warned(LLAMA_8B, engine=args, parameter=role, **role)
    assert len(found) == 2
    assert "spec.decode.args.speculative-config" in found[1]
    assert "the draft (eagle3)" in found[1]
    assert "shared by 2 ranks" in found[1]
    assert "2,048 bytes a token for each of its layers" in found[1]
    assert "spec.model.architecture.draftConfig" in found[1]


@pytest.mark.parametrize("method", ["ngram", "mtp", "suffix"])
def test_a_method_without_a_draft_of_its_own_is_not_warned_of(method: str) -> None:
    assert warned(LLAMA_8B, engine={"args": {"speculative-config": {"method": method}}}) == []


def test_heads_without_attention_lack_no_kv_cache() -> None:
    found = warned(LLAMA_8B, engine={"args": {"speculative-config": {"method": "medusa", "model": "a/b"}}})
    assert found
    assert not any("KV cache (" in text for text in found)


def problems_of(p: int, d: int, config: Config = TWO_KINDS) -> list[str]:
    role = {"accelerator": {"products": H200}, "parallelism": {"tensor": p}}
    stated = spec(parameter=role, parallelism={"tensor": d})
    return [str(problem) for problem in model_problems(stated, model_facts(config))]


def test_different_sizes_are_refused_for_layers_with_different_kv_heads() -> None:
    assert any("50765" in text for text in problems_of(2, 4))
    assert problems_of(2, 2) == []
    assert not any("50765" in text for text in problems_of(2, 4, LLAMA_8B))


def test_the_data_of_the_starts_is_json() -> None:
    assert all(json.loads(Path(file).read_text(encoding="utf-8")) for file in _logs())


def _logs() -> list[Path]:
    return sorted((Path(__file__).parents[2] / "benchmarks" / "memory_plan" / "starts").glob("*/log.json"))
