"""Of the end of a log, the lines that say why a container stopped are quoted.

`last_logs` has the ends of real logs of vLLM 0.32 on CPU, as the kubelet keeps them: each start failed for the reason
that the file is named after.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.cluster.state.last_words import LONGEST, last_words

LOGS = Path(__file__).parent / "last_logs"
SAID = {
    "config-missing": "Invalid repository ID or local directory specified: '/models/noconfig'",
    "config-truncated": "OSError: It looks like the config file at '/models/truncconfig/config.json' is not a valid",
    "dtype-unknown": "vllm serve: error: argument --dtype: invalid choice: 'float8' (choose from 'auto', ",
    "hub-unreachable": "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
    "length-no-number": "vllm serve: error: argument --max-model-len: invalid human_readable_int_or_auto value: 'many'",
    "length-over-the-models": "Value error, User-specified max_model_len (100000) is greater than the derived ",
    "option-unknown": "vllm: error: unrecognized arguments: --no-such-option 3",
    "path-missing": "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/absent'.",
    "port-in-use": "OSError: [Errno 98] Address already in use",
    "architecture-unknown": "The checkpoint you are trying to load has model type `nosuch` but Transformers does",
    "gpu-utilization": "CacheConfig gpu_memory_utilization Input should be less than or equal to 1 (given: 1.7)",
    "heads-odd": "The hidden size (256) is not a multiple of the number of attention heads (3).",
    "kv-transfer-json": "KVTransferConfig Invalid JSON: EOF while parsing an object at line 1 column 22 (given: '{",
    "kv-transfer-role": "kv_role Input should be 'kv_producer', 'kv_both' or 'kv_consumer' (given: 'kv_all')",
    "lora-rank": "error: argument --max-lora-rank: invalid choice: 7 (choose from 1, 8, 16, 32, 64, 128",
    "quantization-unknown": "Value error, Unknown quantization method: int1. Must be one of ['awq', ",
    "repo-id-two-levels": "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/absent/deep'.",
    "speculative-bad": "1 validation error for SpeculativeConfig method Input should be 'ngram', 'medusa',",
    "speculative-draft-missing": "Invalid repository ID or local directory specified: '/models/draft'.",
    "template-missing": "The supplied chat template string (/templates/absent.jinja) appears path-like, ",
    "tensor-parallel-odd": "Total number of attention heads (4) must be divisible by tensor parallel size (3).",
    "tokenizer-missing": "ValueError: Couldn't instantiate the backend tokenizer from one of: (1)",
    "attention-backend": "ValueError: Unknown attention backend: 'NOSUCH'. Valid options are: FLASH_ATTN, ",
    "batched-tokens-small": "max_num_batched_tokens (16) must be greater than or equal to max_num_seqs (64).",
    "scheduler-seqs-zero": "max_num_seqs Input should be greater than or equal to 1 (given: 0)",
    "tool-parser-unknown": "KeyError: 'invalid tool call parser: nosuch (chose from { apertus,",
    "trust-remote-code": "The repository /models/remote contains custom code which must be executed to ",
    "weights-missing-of-a-worker": "RuntimeError: Cannot find any model weights with `/models/noweights`",
}


def test_every_log_has_an_expectation() -> None:
    assert {path.stem for path in LOGS.iterdir()} == set(SAID)


@pytest.mark.parametrize(("name", "said"), SAID.items(), ids=list(SAID))
def test_the_line_that_says_what_is_wrong_is_quoted(name: str, said: str) -> None:
    found = last_words((LOGS / f"{name}.txt").read_text(encoding="utf-8"))
    assert said in found
    assert len(found) <= LONGEST
    for noise in ("Traceback", 'File "', "pid=", "For further information", "input_value", "ArgsKwargs", "UserWarning"):
        assert noise not in found


def engine(*lines: str) -> str:
    """Lines that a process of vLLM logs."""
    return "".join(f"(EngineCore_DP0 pid=77) ERROR 11-26 09:12:31 [core.py:1123] {line}\n" for line in lines)


TRACEBACK = ("Traceback (most recent call last):", '  File "core.py", line 7, in run', "    raise RuntimeError(")
POINTER = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        # the cause is logged by another process, before the exception that ends the container
        (
            engine(*TRACEBACK, "ValueError: too few blocks") + "\n".join([*TRACEBACK, POINTER]),
            "ValueError: too few blocks",
        ),
        # the cause is logged by a worker, whose name has a hyphen
        (
            "(VllmWorker-0 pid=5) ERROR 11-27 02:35:31 [multiproc_executor.py:1057] AttributeError: no init\n"
            + engine(*TRACEBACK, "Exception: WorkerProc initialization failed due to an exception in a background")
            + "\n".join([*TRACEBACK, POINTER]),
            "AttributeError: no init",
        ),
        # the cause is beyond what the kubelet keeps
        ("\n".join([*TRACEBACK, POINTER]), POINTER),
        # a line of source code is no message
        ("\n".join([*TRACEBACK, "RuntimeError: no"]), "RuntimeError: no"),
        # of a chain the last one ended the process
        (
            "\n".join(
                [
                    *TRACEBACK,
                    "KeyError: 'x'",
                    "",
                    "The above exception was the direct cause of the following exception:",
                    "",
                    *TRACEBACK,
                    "a.b.ConfigError: x is missing",
                ]
            ),
            "ConfigError: x is missing",
        ),
        # several lines
        ("ValueError: these options differ:\n  - a\n  - b\n", "ValueError: these options differ: - a - b"),
        # pydantic's, with several fields
        (
            (
                "pydantic_core.ValidationError: 2 validation errors for Config\nseqs\n  Input should be greater than 0 "
                "[type=greater_than, input_value=0, input_type=int]\n    For further information visit https://x\n"
                "length\n  Field required [type=missing, input_value={}, input_type=dict]\n"
            ),
            "ValidationError: 2 validation errors for Config seqs Input should be greater than 0 (given: 0) length",
        ),
        # without a message, the statement
        (
            '  File "x.py", line 1, in f\n    assert heads % 3 == 0\n           ^^^^\nAssertionError',
            "AssertionError: assert heads % 3 == 0",
        ),
        # of several ranks
        (
            "[rank0]: Traceback (most recent call last):\n[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried",
            "OutOfMemoryError: CUDA out of memory. Tried",
        ),
        # cleaning up after the end
        (
            "ValueError: no\nException ignored in: <function f>\n"
            + "\n".join([*TRACEBACK, "TypeError: late"])
            + "\n/usr/lib/x.py:224: UserWarning: 1 leaked semaphore\n  warnings.warn('x')",
            "ValueError: no",
        ),
        # no exception at all
        ('INFO:     127.0.0.1:3 - "POST /v1/completions HTTP/1.1" 200 OK\n', ""),
        ("(APIServer pid=1) INFO 11-26 09:12:31 [loggers.py:1] Avg prompt throughput: 1.0 tokens/s\n", ""),
        (
            "Loading safetensors checkpoint shards:  50% Completed | 1/2\nLoading: 100%|####| 2/2\n",
            "Loading safetensors",
        ),
        (
            "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in\n",
            "[Errno 98] error while attempting to bind on address",
        ),
        ("/bin/sh: 1: vllm: not found\n", "/bin/sh: 1: vllm: not found"),
        (
            'Fatal Python error: Illegal instruction\n\nCurrent thread 0x1:\n  File "x", line 1 in y\n',
            "Fatal Python error: Illegal instruction",
        ),
    ],
)
def test_kinds_of_ends(log: str, words: str) -> None:
    found = last_words(log)
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_a_line_that_lost_its_beginning_is_left_out() -> None:
    log = f"Error: {'x' * 1000}\n(Worker pid=1) INFO 11-26 09:12:31 [a.py:1] {'y' * 1000}\n"
    assert last_words(log) == ""


@given(st.text(st.sampled_from("Error: \n\t[]()pid=1|^FileTraceback\x1b[m'"), max_size=3000))
def test_any_text_gives_one_short_line(log: str) -> None:
    found = last_words(log)
    assert len(found) <= LONGEST
    assert "\n" not in found
