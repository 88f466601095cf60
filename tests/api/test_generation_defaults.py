"""`spec.model.generationDefaults` takes what vLLM takes, and names what somebody probably meant."""

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
        ("max_tokens", "Write max_new_tokens here"),
        ("max_completion_tokens", "Write max_new_tokens here"),
        ("stop_token_ids", "eos_token_id of the model's generation_config.json"),
        ("stop", "into each request"),
        ("n", "it takes temperature, top_p"),
    ],
)
def test_a_name_that_vllm_would_ignore_is_refused(document: Make, name: str, words: str) -> None:
    (message,) = problems(document, **{name: 1, "top_k": 3}).values()
    assert words in message


def test_every_default_of_vllm_is_accepted(document: Make) -> None:
    assert not problems(document, **dict.fromkeys(GENERATION_PARAMETERS, 1))


@pytest.mark.vllm
def test_vllm_takes_these_defaults_and_no_others() -> None:
    from vllm.config import ModelConfig  # noqa: PLC0415

    given = dict.fromkeys((*GENERATION_PARAMETERS, "max_tokens", "stop_token_ids", "stop", "seed", "n"), 2)
    config = SimpleNamespace(generation_config="vllm", override_generation_config=given)
    taken = ModelConfig.get_diff_sampling_param(config)
    assert {"max_new_tokens" if name == "max_tokens" else name for name in taken} == set(GENERATION_PARAMETERS)
