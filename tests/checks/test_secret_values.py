"""What counts as a secret."""

import pytest

from pdinference.checks.secret_values import may_hold_secret


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "x"),
        ("my_password", "hunter2"),
        ("AWS_SECRET_ACCESS_KEY", "abc"),
        ("AWS_ACCESS_KEY_ID", "abc"),
        ("OPENAI_API_KEY_1", "abc"),
        ("WANDB_APIKEY", "abc"),
        ("DB_PASS", "abc"),
        ("ANY", "hf_abcdefghijklmnop"),
        ("REDIS_URL", "redis://user:pw@host:6379"),
    ],
)
def test_a_secret_is_recognized(name: str, value: str) -> None:
    assert may_hold_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "256"),
        ("VLLM_MAX_TOKEN", "256"),
        ("TOKENIZER", "a/b"),
        ("USE_TOKEN", "true"),
        ("SECRETARY", "x"),
        ("PASSTHROUGH", "x"),
        ("CACHE_KEY_PREFIX", "x"),
        ("REDIS_URL", "redis://host:6379"),
    ],
)
def test_a_setting_is_no_secret(name: str, value: str) -> None:
    assert not may_hold_secret(name, value)
