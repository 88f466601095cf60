"""What `vllm bench serve --save-result --save-detailed` writes (vllm/benchmarks/serve.py of vLLM 0.32).

One JSON object with a list for each measure; entry n of each is of request n. Of failed requests, `output_lens` has 0.
`start_times` are readings of a monotonic clock, in seconds.

Tests: tests/advise/advice/workload/test_traces.py
"""

from typing import Final, TypeVar

import msgspec

from pdinference.api.plain_text import plain
from pdinference_advise.advice.workload.bounds import MOST_REQUESTS, WorkloadError
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.advice.workload.traces.lines import Lines
from pdinference_advise.advice.workload.traces.rows import Rows

_Number = TypeVar("_Number", int, float)
_MOST_BYTES: Final = 2**28
"""Bytes of a result. It has about 20 for each generated token (`itls`, `generated_texts`)."""
_MEMBERS: Final = (b'"input_lens"', b'"endpoint_type"', b'"total_input_tokens"')
_AGAIN: Final = "Run `vllm bench serve` again with --save-result --save-detailed."


class _Result(msgspec.Struct):
    """The members that make a workload, not decoded, because their size is not known yet. Others are skipped."""

    input_lens: msgspec.Raw = msgspec.Raw()
    output_lens: msgspec.Raw = msgspec.Raw()
    start_times: msgspec.Raw = msgspec.Raw()


def recognises(begin: bytes) -> bool:
    """Whether a file that begins so is in this format."""
    return begin.startswith(b"{") and any(member in begin for member in _MEMBERS)


def read(lines: Lines) -> Trace:
    """Read the requests of a result.

    Raises:
        WorkloadError: It is none, or has no requests.
    """
    name = lines.name
    result = _decoded(lines.whole(_MOST_BYTES), name)
    prompts = _list(result.input_lens, "input_lens", name, list[int])
    answers = _list(result.output_lens, "output_lens", name, list[int])
    times = _list(result.start_times, "start_times", name, list[float])
    if not len(prompts) == len(answers) == len(times):
        raise WorkloadError(
            f"{name}: input_lens, output_lens and start_times have {len(prompts):,}, {len(answers):,} and "
            f"{len(times):,} entries. They must have one for each request."
        )
    rows = Rows(name, "request")
    for number, (at, prompt, answer) in enumerate(zip(times, prompts, answers, strict=True), 1):
        rows.add(number, at=at, prompt=prompt, answer=answer)
    return rows.trace(f"`vllm bench serve` result {name}")


def _decoded(content: bytes, name: str) -> _Result:
    try:
        return msgspec.json.decode(content, type=_Result)
    except (msgspec.MsgspecError, RecursionError) as error:
        if "trailing characters" in str(error):
            raise WorkloadError(
                f"{name} has several results (--append-result). Give one of its lines, for example with tail -n 1."
            ) from None
        raise WorkloadError(f"{name} is no result of `vllm bench serve`: {plain(str(error), 200)}.") from None


def _list(raw: msgspec.Raw, member: str, name: str, kind: type[list[_Number]]) -> list[_Number]:
    content = bytes(raw)
    if not content:
        raise WorkloadError(f"{name} has no {member}, so it does not say when which requests came. {_AGAIN}")
    if content.count(b",") >= MOST_REQUESTS:
        raise WorkloadError(f"{name} has more than {MOST_REQUESTS:,} requests.")
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise WorkloadError(f"{name}: {member} is no list of numbers: {plain(str(error), 200)}.") from None
