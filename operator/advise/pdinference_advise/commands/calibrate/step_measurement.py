"""The program that measures steps (measure_steps.py), with the options of a resource.

Tests: tests/advise/commands/calibrate/test_calibrate.py
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.vllm import engine_command

SCRIPT: Final = ("measure_steps", "pdinference_advise.commands.calibrate")
"""The program and its package."""
MOST_REQUESTS: Final = 128
_KEPT: Final = frozenset(
    {
        "--dtype", "--quantization", "--tensor-parallel-size", "--enable-expert-parallel", "--max-model-len",
        "--block-size", "--kv-cache-dtype", "--gpu-memory-utilization", "--enforce-eager", "--no-enforce-eager",
        "--compilation-config", "--max-num-seqs", "--kv-cache-memory-bytes", "--attention-backend",
    }
)  # fmt: skip
"""Options that change the time of a step or the room for requests. Others need files, ports or other pods."""


def measuring_options(
    resource: PDInference, config: Mapping[str, Any], *, step_tokens: int, requests: int, quick: bool
) -> list[str]:
    """The program's options, not escaped for the kubelet.

    Args:
        resource: What is served. D's options count.
        config: The model's config.json.
        step_tokens: `max-num-batched-tokens`.
        requests: `max-num-seqs`.
        quick: Whether fewer repetitions are enough.
    """
    about = {"resource": resource.model_dump(by_alias=True, exclude_unset=True, mode="json")}
    arguments = [_unescaped(word) for word in engine_command(resource, Role.DECODE).arguments[1:]]
    return [
        f"--config={json.dumps(config, separators=(',', ':'))}",
        f"--about={json.dumps(about, separators=(',', ':'))}",
        f"--step-tokens={step_tokens}",
        f"--requests={min(requests, MOST_REQUESTS)}",
        *(["--quick"] if quick else []),
        "--",
        *(word for word in arguments if word.partition("=")[0] in _KEPT),
    ]


def _unescaped(word: str) -> str:
    return word.replace("$$", "$")
