"""What vLLM's CPU backend lacks for experts that are spread over data-parallel ranks; patches.py makes vLLM use it.

Each rank has some of the experts, and all ranks compute the tokens of all ranks with theirs. Before, each rank needs
the tokens of the others, which differ in number; after, the sum of the results for its own tokens. On GPUs, vLLM has
both (all_gatherv and reduce_scatterv, distributed/device_communicators). And the kernel for CPUs takes an expert's
number in the whole model for its place in the weights of this rank, which it is not.
"""

from __future__ import annotations

import torch
import torch.distributed as dist


def gathered(tensor: torch.Tensor, sizes: list[int], group: dist.ProcessGroup) -> torch.Tensor:
    """The rows of all ranks.

    Args:
        tensor: Those of this rank.
        sizes: The rows of each rank.
        group: The ranks.
    """
    padded = tensor.new_zeros((max(sizes), *tensor.shape[1:]))
    padded[: tensor.shape[0]] = tensor
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def summed(tensor: torch.Tensor, sizes: list[int], rank: int, group: dist.ProcessGroup) -> torch.Tensor:
    """The sum over all ranks of the rows that are those of this rank.

    Args:
        tensor: The rows of all ranks.
        sizes: The rows of each rank.
        rank: This one.
        group: The ranks.
    """
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    begin = sum(sizes[:rank])
    return total[begin : begin + sizes[rank]].contiguous()


def local_experts(
    ids: torch.Tensor, weights: torch.Tensor, places: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which experts of this rank a token goes to, with the weight 0 for those of others.

    Args:
        ids: Numbers of experts in the whole model, for each token.
        weights: Their weights.
        places: The place of each expert at this rank; -1 for those of others. None if all are here.
    """
    if places is None:
        return ids, weights
    here = places[ids.long()]
    return here.clamp(min=0).to(ids.dtype), torch.where(here < 0, torch.zeros_like(weights), weights)
