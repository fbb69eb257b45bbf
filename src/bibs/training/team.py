"""Processes that train one model together, started by `torchrun`: each reads its share of every batch.

The loss of a batch is a sum over its tokens, so the gradients of all shares sum to that of the batch. The weights stay
equal everywhere, and are those of one process with the same batches, but for the order of sums and for what is dropped.
The first process alone writes. One process without `torchrun` is a team of one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn


@contextmanager
def joined() -> Iterator[None]:
    """Be one of the team while the block runs, where `torchrun` has started one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    dist.init_process_group("gloo")  # training runs on the processor
    try:
        yield
        wait()  # whoever leaves while others still talk to it ends them
    finally:
        dist.destroy_process_group()


def size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def is_first() -> bool:
    return rank() == 0


def wait() -> None:
    """Until all are here."""
    if size() > 1:
        dist.barrier()


def add_up(*numbers: float) -> list[float]:
    """The sums over the team."""
    if size() == 1:
        return list(numbers)
    sums = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(sums)
    return sums.tolist()


def add_gradients(model: nn.Module) -> None:
    """Sum every gradient over the team. One that nobody has stays None, as in a single process."""
    if size() == 1:
        return
    weights = list(model.parameters())
    present = torch.tensor([0.0 if weight.grad is None else 1.0 for weight in weights])
    parts = [(torch.zeros_like(weight) if weight.grad is None else weight.grad).flatten() for weight in weights]
    flat = torch.cat([*parts, present])
    dist.all_reduce(flat)
    *sums, present = torch.split(flat, [*(weight.numel() for weight in weights), len(weights)])
    for weight, gradient, count in zip(weights, sums, present.tolist(), strict=True):
        weight.grad = gradient.view_as(weight) if count else None
