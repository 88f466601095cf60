"""Converts options of vLLM to fields of the resource by a table.

A setting is the path of a field with its value. The prefix `both.` denotes a field of `spec.engine` and of each role,
and `role.` denotes a field of roles only. Other paths are relative to `spec`, for fields that P and D share.

Tests: tests/conversion/test_every_option.py, tests/conversion/test_resource.py
"""

from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pdinference.api.v1alpha1.base import ApiModel
from pdinference.api.v1alpha1.engine import EngineOptions, KVCache
from pdinference.api.v1alpha1.expert_transport import OPTION
from pdinference.api.v1alpha1.model import LoRA, Model, WeightLoading
from pdinference.checks.options import is_official
from pdinference.conversion.api_keys import api_key
from pdinference.conversion.kv_transfer import kv_tiers, transfer
from pdinference.conversion.launch import Finding, Launch, Remark
from pdinference.conversion.left_out import reason_to_leave_out
from pdinference.conversion.model_fields import adapters, chat_template, hub_token, served_names
from pdinference.conversion.options import ParsedOptions, shown
from pdinference.conversion.rope import rope_settings
from pdinference.conversion.values import count, gib, json_object

Convert = Callable[[Any, ParsedOptions, Launch], Iterator[Finding]]


def _field(path: str, read: Callable[[Any], Any] = lambda value: value) -> Convert:
    """An option that maps to one field. `read` converts the value, and raises ValueError if it is invalid."""

    def convert(value: Any, _options: ParsedOptions, _launch: Launch) -> Iterator[Finding]:
        yield path, read(value)

    return convert


def _choice(model: type[ApiModel], name: str) -> Callable[[Any], Any]:
    """Read a value that must be one of the field's allowed values."""
    allowed = tuple(_literals(model.model_fields[name].annotation))

    def read(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"The field takes {', '.join(map(str, allowed))}.")
        return value

    return read


def _literals(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif get_origin(annotation) in {Union, UnionType, Annotated}:
        for part in get_args(annotation):
            yield from _literals(part)


def _nothing(_value: Any, _options: ParsedOptions, _launch: Launch) -> Iterator[Finding]:
    """An option that another option implies."""
    yield from ()


def _lora(path: str, read: Callable[[Any], Any]) -> Convert:
    def convert(value: Any, options: ParsedOptions, _launch: Launch) -> Iterator[Finding]:
        if options.values.get("enable-lora"):
            yield path, read(value)

    return convert


def _if_true(path: str, value: Any) -> Convert:
    def convert(switch: Any, _options: ParsedOptions, _launch: Launch) -> Iterator[Finding]:
        if switch is True:
            yield path, value

    return convert


def _local_ranks(value: Any, options: ParsedOptions, _launch: Launch) -> Iterator[Finding]:
    """The data-parallel ranks of one node say how many nodes there are."""
    data = options.values.get("data-parallel-size", 1)
    if value < 1 or data % value:
        raise ValueError(f"--data-parallel-size, {data}, is not a multiple of it.")
    if data > value:
        yield "role.parallelism.nodes", data // value


def _tokenizer_mode(value: Any, _options: ParsedOptions, launch: Launch) -> Iterator[Finding]:
    if value == "slow" and (launch.image is None or is_official(launch.image)):
        raise ValueError(
            "vLLM no longer has a tokenizer mode of this name; 0.23.0 was the last one with it. It loads the tokenizer "
            "that transformers finds."
        )
    yield "both.args.tokenizer-mode", value


def _load_format(value: Any, _options: ParsedOptions, _launch: Launch) -> Iterator[Finding]:
    """A loader that needs no options of its own. Others stay options."""
    try:
        yield "model.load.format", _choice(WeightLoading, "format")(value)
    except ValueError:
        yield "both.args.load-format", value


def _expert_transport(value: Any, options: ParsedOptions, _launch: Launch) -> Iterator[Finding]:
    """A backend that the field has. Others stay options."""
    if not options.values.get("enable-expert-parallel") or options.values.get("data-parallel-size", 1) == 1:
        raise ValueError("It has no effect without --enable-expert-parallel and --data-parallel-size above 1.")
    try:
        yield "both.expertTransport", _choice(EngineOptions, "expert_transport")(value)
    except ValueError:
        yield f"both.args.{OPTION}", value


FILES = frozenset(
    {"hf-config-path", "log-config-file", "mm-encoder-fp8-scale-path", "reasoning-parser-plugin", "tool-parser-plugin"}
)
"""Options whose value is a file or folder that vLLM reads. Those with a row of their own are not listed."""
TABLE: Mapping[str, Convert] = {
    "dtype": _field("model.dtype", _choice(Model, "dtype")),
    "quantization": _field("model.quantization", _choice(Model, "quantization")),
    "load-format": _load_format,
    "max-model-len": _field("model.maxModelLength", count),
    "tokenizer": _field("model.tokenizer"),
    "tokenizer-mode": _tokenizer_mode,
    "trust-remote-code": _if_true("model.trustRemoteCode", value=True),
    "chat-template": chat_template,
    "override-generation-config": _field("model.generationDefaults", json_object),
    "served-model-name": served_names,
    "hf-token": hub_token,
    # The model and its revision are read with the source (conversion/model_fields.py).
    "model": _nothing,
    "revision": _nothing,
    "tokenizer-revision": _nothing,
    "enable-lora": _if_true("model.lora", value={}),
    "lora-modules": adapters,
    "max-lora-rank": _lora("model.lora.maxRank", _choice(LoRA, "max_rank")),
    "max-loras": _lora("model.lora.maxActive", count),
    "tensor-parallel-size": _field("role.parallelism.tensor"),
    "pipeline-parallel-size": _field("role.parallelism.pipeline"),
    "data-parallel-size": _field("role.parallelism.data"),
    "data-parallel-size-local": _local_ranks,
    "nnodes": _field("role.parallelism.nodes"),
    "enable-expert-parallel": _if_true("role.parallelism.expert", value=True),
    "kv-cache-dtype": _field("engine.kvCache.dtype", _choice(KVCache, "dtype")),
    "block-size": _field("engine.kvCache.blockSize", _choice(KVCache, "block_size")),
    "max-num-seqs": _field("both.maxNumSeqs"),
    "max-num-batched-tokens": _field("both.maxNumBatchedTokens", count),
    "gpu-memory-utilization": _field("both.gpuMemoryUtilization", float),
    "enable-chunked-prefill": _field("both.enableChunkedPrefill"),
    "enable-prefix-caching": _field("both.enablePrefixCaching"),
    OPTION: _expert_transport,
    "enforce-eager": _field("both.enforceEager"),
    "cpu-offload-gb": _field("both.cpuOffload", gib),
    "seed": _field("both.seed"),
    "api-key": api_key,
    "kv-transfer-config": transfer,
    "kv-offloading-size": kv_tiers,
    "kv-offloading-backend": _nothing,
    "shutdown-timeout": _field("rollout.drainSeconds"),
    "port": _field("router.service.port"),
}


def settings(options: ParsedOptions, launch: Launch) -> Iterator[Finding]:
    """Findings for all options of a command line."""
    for name, value in options.values.items():
        convert = TABLE.get(name)
        if convert is not None:
            yield from _converted(convert, name, value, options, launch)
        elif why := reason_to_leave_out(name):
            yield Remark(_with_value(name, value), why)
        else:
            yield f"both.args.{name}", value
            yield from _about_files(name, value)
    yield from rope_settings(options)


def _converted(convert: Convert, name: str, value: Any, options: ParsedOptions, launch: Launch) -> Iterator[Finding]:
    try:
        yield from convert(value, options, launch)
    except ValueError as error:
        yield Remark(_with_value(name, value), str(error))


def _with_value(name: str, value: Any) -> str:
    values = value if isinstance(value, list) else [] if isinstance(value, bool) else [value]
    return shown(name, (str(each) for each in values))


def _about_files(name: str, value: Any) -> Iterator[Remark]:
    if name in FILES and isinstance(value, str) and "/" in value:
        yield Remark(
            f"--{name} {value}",
            "The pods need this file: add it to the engine image, or mount it with podTemplate of both roles.",
            left_out=False,
        )
