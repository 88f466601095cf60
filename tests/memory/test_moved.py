"""Bytes of KV cache that move for a prompt token."""

from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.memory import Inputs, model_facts, plan_role
from pdinference.memory.moved import FP8, LINKS, Moved, moved
from tests.memory.configs import DEEPSEEK_V2_LITE, LLAMA_8B

LLAMA_BYTES = 32 * 8 * 128 * 2 * 2  # layers, KV heads, head size, K and V, bytes


def of(config: dict[str, Any], **spec: Any) -> tuple[Moved, ...]:
    inputs = Inputs(Spec.model_validate({"model": {"source": {"path": "/a"}}, **spec}), model_facts(config))
    return moved(inputs, plan_role(inputs, Role.DECODE))


def sizes(rows: tuple[Moved, ...]) -> dict[str, float | None]:
    return {row.change: row.token_bytes.value for row in rows}


def ranks(number: int) -> dict[str, Any]:
    return {role: {"parallelism": {"tensor": number}} for role in ("parameter", "decode")}


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_ranks_share_the_heads_of_a_token(tensor: int) -> None:
    assert sizes(of(LLAMA_8B, **ranks(tensor))) == {"": LLAMA_BYTES, FP8: LLAMA_BYTES / 2}


def test_each_rank_gets_the_latent_vector_of_mla() -> None:
    one, two = (sizes(of(DEEPSEEK_V2_LITE, **ranks(tensor)))[""] for tensor in (1, 2))
    assert one
    assert two == 2 * one


@pytest.mark.parametrize("dtype", ["fp8", "fp8_e5m2"])
def test_nothing_is_proposed_beyond_fp8(dtype: str) -> None:
    assert sizes(of(LLAMA_8B, engine={"kvCache": {"dtype": dtype}})) == {"": LLAMA_BYTES / 2}


def test_what_does_not_move_or_depends_on_the_length_has_no_size() -> None:
    cpu = {role: {"accelerator": {"type": "CPU"}} for role in ("parameter", "decode")}
    assert of(LLAMA_8B, **cpu) == of(LLAMA_8B, mode="Aggregated") == ()
    assert set(sizes(of(LLAMA_8B | {"sliding_window": 1024})).values()) == {None}


def test_a_link_carries_so_many_prompts() -> None:
    tcp, _ = LINKS
    assert [row.prompts(tcp, 8_000).value for row in of(LLAMA_8B)] == pytest.approx([2.48, 4.96], abs=0.01)
