"""What vLLM says of the tokens of an answer."""

import pytest

from pdinference.router.usage import Usage, usage_in

DETAILS = b'"prompt_tokens_details":{"cached_tokens":384}'


@pytest.mark.parametrize(
    ("text", "usage"),
    [
        (b'data: {"choices":[],"usage":{"prompt_tokens":400,"completion_tokens":9}}\n\n', Usage(400, 9)),
        (b'{"usage": {"prompt_tokens": 400, "completion_tokens": 9,' + DETAILS + b"}}", Usage(400, 9, 384)),
        (
            b'{"usage":{"input_tokens":400,"input_tokens_details":{"cached_tokens":8},"output_tokens":9}}',
            Usage(400, 9, 8),
        ),
        (b'{"usage":{"input_tokens":392,"cache_read_input_tokens":8,"output_tokens":9}}', Usage(400, 9, 8)),
        (
            b'{"usage":{"input_tokens":0,"cache_creation_input_tokens":2,"cache_read_input_tokens":8,"output_tokens":9}}',
            Usage(10, 9, 8),
        ),
        (b'{"usage":{"completion_tokens":1}}{"usage":{"completion_tokens":2}}', Usage(0, 2)),
        (b'{"content":"\\"prompt_tokens\\": 7 \\"completion_tokens\\": 7"}', None),
        (
            b'{"usage":{"prompt_tokens":4,"completion_tokens":9},"prompt_token_ids":[' + b"72," * 50_000 + b"72]}",
            Usage(4, 9),
        ),
        (b'{"usage":{"input_tokens":4,"output_tokens":9},"user":"' + b"x" * 100_000 + b'"}', Usage(4, 9)),
        (b'{"usage":{"completion_tokens":null}}', None),
        (b"", None),
    ],
)
def test_usage(text: bytes, usage: Usage | None) -> None:
    assert usage_in(text) == usage
