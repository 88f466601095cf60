"""vLLM's parser of command lines."""

import functools
from argparse import Namespace
from typing import Any

from pdinference.api.engines import Slot
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.vllm import engine_command


@functools.cache
def parser() -> Any:
    """The parser of `vllm serve`; importing vLLM takes half a minute."""
    try:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser  # noqa: PLC0415
    except ModuleNotFoundError:  # vLLM 0.33
        from vllm.entrypoints.common.cli_args import make_arg_parser  # noqa: PLC0415
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    return make_arg_parser(FlexibleArgumentParser())


def parsed(resource: PDInference, role: Role, node_rank: int = 0, slot: Slot | None = None) -> Namespace:
    arguments = [argument.replace("$$", "$") for argument in engine_command(resource, role, node_rank, slot).arguments]
    namespace: Namespace = parser().parse_args(arguments)
    return namespace
