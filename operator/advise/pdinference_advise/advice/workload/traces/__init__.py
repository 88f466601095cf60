"""Traces of requests in files. The format is recognised by the content."""

from typing import BinaryIO, Final

from pdinference_advise.advice.workload.bounds import WorkloadError
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.advice.workload.traces import azure, mooncake, vllm_bench
from pdinference_advise.advice.workload.traces.lines import Lines
from pdinference_advise.advice.workload.traces.mooncake import TimeUnit

_GZIP: Final = b"\x1f\x8b"
_ZSTANDARD: Final = b"\x28\xb5\x2f\xfd"
_FORMATS: Final = (
    "Traces are the CSV of Azure's LLM inference traces (TIMESTAMP,ContextTokens,GeneratedTokens), Mooncake's JSON "
    'lines ({"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}, also for the '
    "dataset timed_trace of vLLM), and the result of `vllm bench serve --save-result --save-detailed`."
)


def read(stream: BinaryIO, name: str, *, unit: TimeUnit | None = None) -> Trace:
    """Read a trace.

    Args:
        stream: The content. It is read once, in pieces.
        name: Name of the file, for messages.
        unit: Unit of the time stamps in JSON lines; None is milliseconds if they are whole numbers.

    Raises:
        WorkloadError: The content is no trace, or a row of it is wrong.
        OSError: The stream cannot be read.
    """
    lines = Lines(stream, name)
    begin = lines.begin()
    _require_text(begin, name)
    if azure.recognises(begin):
        return azure.read(lines)
    if mooncake.recognises(begin):
        return mooncake.read(lines, unit)
    if vllm_bench.recognises(begin):
        return vllm_bench.read(lines)
    if begin.startswith(b'{"prompt"'):
        raise WorkloadError(
            f"{name} has prompts as text, without times and token counts (the dataset custom of vLLM). Run it with "
            "`vllm bench serve --save-result --save-detailed`, and give the result."
        )
    raise WorkloadError(f"{name} is in no format that is known. {_FORMATS}")


def _require_text(begin: bytes, name: str) -> None:
    if not begin.strip():
        raise WorkloadError(f"{name} is empty. {_FORMATS}")
    if begin.startswith((_GZIP, _ZSTANDARD)):
        raise WorkloadError(f"{name} is compressed. Decompress it first, with gunzip or unzstd.")
    if b"\0" in begin:
        raise WorkloadError(f"{name} is not UTF-8 text. {_FORMATS}")
