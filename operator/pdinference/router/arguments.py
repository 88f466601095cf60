"""`vllm_xargs`: arguments of a request for extensions of vLLM.

vLLM hands them to its engine as they came, beside members that the router sets: an engine that finds a text where it
expects the `kv_transfer_params` of a hand-over ends (vllm/v1/request.py). So only known arguments pass.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec

from pdinference.router.untrusted import NotJsonError, decoded

ARGUMENTS: Final = "vllm_xargs"
"""The member of bodies, and the field of forms, that has them."""

_MOST: Final = 64
_LONGEST: Final = 2**20
"""Bytes of all arguments."""
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Text = Annotated[str, msgspec.Meta(max_length=4096)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Ids = Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]], msgspec.Meta(max_length=4096)]
_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | float
_Any = _Text | bool | _Number | Annotated[list[_Text | bool | _Number], msgspec.Meta(max_length=4096)]

_KNOWN: Final[Mapping[str, Any]] = {
    "session_id": _Text,  # vllm/entrypoints/generate/base/serving.py
    "ngram_size": _Positive,  # vllm/model_executor/models/deepseek_ocr.py
    "window_size": _Positive,
    "whitelist_token_ids": _Ids,
}
"""Arguments that vLLM's own extensions read, and what they take. Those of diffusion models (`diffusion_*`) are not
among them: one of a wrong length ends the engine."""

NEVER: Final = frozenset({"kv_cache_report_mode"})
"""Arguments that the engine itself reads (vllm/v1/request.py), beside `is_internal`."""


class ArgumentError(Exception):
    """An argument that may not pass."""


def is_internal(name: str) -> bool:
    """Whether a member of a body, or an argument, says where KV cache or encoder outputs are.

    With `kv_transfer_params` or `ec_transfer_params`, a client could make D read from any address.
    """
    return name.endswith("_transfer_params")


def checked(value: bytes | msgspec.Raw, *, custom: bool) -> dict[str, Any]:
    """The arguments, if all of them may pass.

    Args:
        value: The member of the body, in JSON.
        custom: Whether vLLM runs logits processors of the user's, which have arguments of their own.

    Raises:
        ArgumentError: One may not pass. The message is for the client.
    """
    if len(memoryview(value)) > _LONGEST:
        raise ArgumentError(f"`{ARGUMENTS}` is longer than {_LONGEST} bytes.")
    found = _read(value, dict[_Name, msgspec.Raw] | None, lambda: f"`{ARGUMENTS}` is not an object") or {}
    if len(found) > _MOST:
        raise ArgumentError(f"`{ARGUMENTS}` has {len(found)} arguments; the maximum is {_MOST}.")
    for name in found:
        if is_internal(name) or name in NEVER or not (custom or name in _KNOWN):
            raise ArgumentError(
                f"`{ARGUMENTS}.{name[:64]}` is not supported. Supported are {', '.join(_KNOWN)}, and the arguments of "
                "logits processors if vLLM runs with `--logits-processors`."
            )
    return {name: _value(name, raw) for name, raw in found.items()}


def _value(name: str, raw: msgspec.Raw) -> Any:
    return _read(raw, _KNOWN.get(name, _Any), lambda: f"`{ARGUMENTS}.{name[:64]}` has a wrong value")


def _read(value: bytes | msgspec.Raw, form: Any, problem: Callable[[], str]) -> Any:
    try:
        return decoded(value, form)
    except NotJsonError as error:
        raise ArgumentError(f"{problem()}: {error}.") from None
