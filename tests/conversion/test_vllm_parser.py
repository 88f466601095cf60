"""For vLLM's parser, a command line and the rendered command of its conversion have the same options."""

import argparse
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.validation import validated
from pdinference.checks.removed_options import REMOVED
from pdinference.conversion import convert, starts_in_script
from pdinference.conversion.options import SHORT
from pdinference.conversion.values import count
from pdinference.engine.vllm import engine_command
from tests.engine.vllm_parser import parser

pytestmark = pytest.mark.vllm

NOTES = [
    "--trust-remote-code",
    "--tokenizer a/tokenizer",
    "--dtype half",
    "--dtype float",
    "--quantization awq",
    "-q gptq",
    "--quantization bitsandbytes",
    "--max-model-len 25.6k",
    "--max_model_len 4096",
    "-tp 2",
    "--tensor-parallel-size 2 --data-parallel-size 2 -ep",
    "--gpu-memory-utilization 0.85",
    "--gpu-memory-util 0.85",
    "--enable-chunked-prefill",
    "--no-enable-chunked-prefill",
    "--enforce-eager",
    "--kv-cache-dtype fp8",
    "--max-num-batched-tokens 4K",
    "--max-num-seqs 64",
    "--enable-prefix-caching",
    "--enable-lora --lora-modules a=/b c=x/d --max-lora-rank 32 --max-loras 2",
    "--cpu-offload-gb 2.5",
    "--seed 7",
    "--block-size 64",
    "--served-model-name chat",
    "--chat-template '{{ messages }}'",
    "--override-generation-config '{\"temperature\": 0.3}'",
    "--hf-overrides '{\"rope_theta\": 1e6}' --max-logprobs=5 --generation-config vllm -O2",
    "--cudagraph-capture-sizes 1 2 4 --load-format dummy",
    "-cc.mode=3 -cc.cudagraph_mode=FULL",
    "--compilation_config.pass_config.fuse_norm_quant true --compilation-config.cudagraph_capture_sizes+ 1",
    "--hf-overrides.a+=x,y --hf-overrides.b 2k --hf-overrides.rope_parameters.factor 4.0",
    "-O3 --limit-mm-per-prompt.image 2",
    "--limit-mm-per-prompt '{\"image\": 2}' --kv-cache-memory-bytes 10G",
    "--speculative-config.method ngram --speculative-config.num_speculative_tokens 3",
]
REFUSED = [
    "--limit-mm-per-prompt image=2",
    "--compilation-config 3",
    "--speculative-config ngram",
    "--allowed-origins https://a",
    "--kv-cache-memory-bytes much",
    "--max-num-queued-reqs 1.5",
    "--kv-transfer-config NixlConnector",
]
OF_OPERATOR = {"kv_transfer_config", "host", "port", "shutdown_timeout", "max_num_batched_tokens", "block_size"}
OF_OPERATOR |= {"disable_access_log_for_endpoints", "revision", "tokenizer_revision", "api_server_count"}


def parse(arguments: list[str]) -> dict[str, Any]:
    namespace = parser().parse_args(arguments)
    namespace.model = namespace.model_tag or namespace.model  # as `vllm serve` does
    del namespace.model_tag
    return {name: value for name, value in vars(namespace).items() if not callable(value)}


@pytest.mark.parametrize("options", NOTES)
def test_a_converted_option_means_the_same_to_vllm(options: str) -> None:
    (launch,) = starts_in_script(f"python -m vllm.entrypoints.openai.api_server --model a/b {options}")
    conversion = convert(launch)
    assert [remark for remark in conversion.remarks if remark.left_out] == []
    wanted = parse(list(launch.arguments))
    named = {option for option in ("max_num_batched_tokens", "block_size") if option.replace("_", "-") in options}
    for role in Role.PARAMETER, Role.DECODE:
        found = parse([a.replace("$$", "$") for a in engine_command(validated(conversion.document), role).arguments])
        differing = {name for name in wanted if repr(wanted[name]) != repr(found[name])} - (OF_OPERATOR - named)
        assert differing <= ({"served_model_name"} if "--served-model-name" not in options else set())


@pytest.mark.parametrize("options", REFUSED)
def test_what_convert_calls_invalid_is_refused_by_vllm(options: str) -> None:
    (launch,) = starts_in_script(f"vllm serve a/b {options}")
    assert "expects" in str([remark.text for remark in convert(launch).remarks if remark.left_out])
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        parse(["--model", "a/b", *options.split()])


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_vllm_lacks_what_the_table_says(name: str) -> None:
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        parse(["--model", "a/b", f"--{name}=1"])


def test_short_options_are_those_of_vllm() -> None:
    short = {
        option: next(long for long in action.option_strings if long.startswith("--"))[2:]
        for action in parser()._actions
        for option in action.option_strings
        if not option.startswith("--") and option != "-h"
    }
    assert short == {option: name for option, name in SHORT.items() if option != "-O"}


@pytest.mark.parametrize("text", ["4096", "4k", "4K", "25.6k", "2M", "1g"])
def test_counts_are_read_as_vllm_reads_them(text: str) -> None:
    assert parse(["--max-model-len", text])["max_model_len"] == count(text)


def test_vllm_has_no_slow_tokenizers() -> None:
    from vllm.tokenizers.registry import TokenizerRegistry  # noqa: PLC0415

    with pytest.raises(ValueError, match="slow"):
        TokenizerRegistry.load_tokenizer_cls("slow")
