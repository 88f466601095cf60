"""`spec.model.generationDefaults` accepts vLLM's parameters, and suggests the right name for others."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pdinference.api.v1alpha1.model import GENERATION_PARAMETERS
from pdinference.api.validation import read

Make = Callable[..., dict[str, Any]]


def problems(document: Make, **defaults: Any) -> dict[str, str]:
    model = {"source": {"path": "/models/a"}, "generationDefaults": defaults}
    return {problem.field: problem.message for problem in read(document(model=model)).problems}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("max_tokens", "Write max_new_tokens"),
        ("max_completion_tokens", "Write max_new_tokens"),
        ("stop_token_ids", "eos_token_id in the model's generation_config.json"),
        ("stop", "in each request"),
        ("n", "server-wide defaults: temperature, top_p"),
    ],
)
def test_a_parameter_that_vllm_would_ignore_is_rejected(document: Make, name: str, words: str) -> None:
    (message,) = problems(document, **{name: 1, "top_k": 3}).values()
    assert words in message


def test_all_server_wide_defaults_of_vllm_are_accepted(document: Make) -> None:
    assert not problems(document, **dict.fromkeys(GENERATION_PARAMETERS, 1))


@pytest.mark.vllm
def test_vllm_accepts_exactly_these_defaults() -> None:
    from vllm.config import ModelConfig  # noqa: PLC0415

    given = dict.fromkeys((*GENERATION_PARAMETERS, "max_tokens", "stop_token_ids", "stop", "seed", "n"), 2)
    config = SimpleNamespace(generation_config="vllm", override_generation_config=given)
    taken = ModelConfig.get_diff_sampling_param(config)
    assert {"max_new_tokens" if name == "max_tokens" else name for name in taken} == set(GENERATION_PARAMETERS)
