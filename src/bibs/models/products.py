"""Rows times a matrix, as decoding needs it: in float32, or with 8-bit integers.

With q(x) = round(127 x / max |x|), a row h and a column w of the matrix,

    h . w  is nearly  (q(h) . q(w))  max|h| max|w| / 127²

Sums of integers are exact, and every row and every column has a scale of its own. So what comes out for a row does not
depend, to the last bit, on the rows that are multiplied with it.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 127
"""Integers run from -LEVELS to LEVELS: the same on both sides, so that 0 stays 0."""

ROUNDING = 1e-4
"""What float32 makes of a whole number times a scale may differ from it by so much of the scale, and by less."""

TINY = 1e-30
"""Stands for the largest number of a row of zeros."""


class Matrix(Protocol):
    """A weight (N, K), as `torch.nn.Linear` has it, and a bias (N,) if there is one."""

    unit: int
    """How many numbers of a row elementwise functions should work on at a time: sizes are made multiples of it."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, num_fine: int = 0) -> None:
        """The first `num_fine` columns of the result matter most."""
        ...

    def __call__(self, rows: Tensor) -> Tensor:
        """(R, K) -> (R, N), the bias added."""
        ...

    def add_to(self, sums: Tensor, rows: Tensor) -> Tensor:
        """The product (R, N) of the rows (R, K) added to `sums`, in place, without the bias."""
        ...

    def columns(self, first: int, last: int) -> Matrix:
        """The matrix that gives these columns of the result alone."""
        ...


class FloatMatrix:
    """The plain product. The weight is kept transposed: at few rows it multiplies up to twice as fast."""

    unit = 1

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, num_fine: int = 0) -> None:
        self.weight = weight.detach().t().contiguous()  # (K, N)
        self.bias = bias

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.mm(rows, self.weight) if self.bias is None else torch.addmm(self.bias, rows, self.weight)

    def add_to(self, sums: Tensor, rows: Tensor) -> Tensor:
        return sums.addmm_(rows, self.weight)

    def columns(self, first: int, last: int) -> FloatMatrix:
        part = object.__new__(FloatMatrix)
        part.weight = self.weight[:, first:last]
        part.bias = None if self.bias is None else self.bias[first:last]
        return part


class Int8Matrix:
    """Integers, one scale a column of the result, and one a row.

    Fine columns have two columns of integers, the second for what rounding took from the first.
    """

    # torch computes what is left over of 32 numbers by other functions, whose last bit may differ. Which numbers are
    # left over would depend on how many rows there are.
    unit = 32

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, num_fine: int = 0) -> None:
        weight = _deepened(weight.detach().float())  # (N, K)
        integers, scales = quantise(weight)
        self.num_fine = 0 if holds_integers(weight) else num_fine  # whether rounding leaves anything
        left, left_scales = quantise((weight - integers * scales)[: self.num_fine])
        self.weight, self.scales = torch.cat([integers, left]), torch.cat([scales, left_scales])[:, 0]  # N + num_fine
        self.bias = None if bias is None else bias.float()

    def __call__(self, rows: Tensor) -> Tensor:
        product, scales = self._multiply(rows)
        product.mul_(scales)
        return product if self.bias is None else product.add_(self.bias)

    def add_to(self, sums: Tensor, rows: Tensor) -> Tensor:
        return sums.addcmul_(*self._multiply(rows))

    def _multiply(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The product (R, N), and the scale (R, 1) by which each of its rows is still to be multiplied."""
        values, scales = quantise(_deepened(rows))
        product = torch._int_mm(values, self.weight.t()).float().mul_(self.scales)
        if self.num_fine:
            size = product.shape[1] - self.num_fine
            product[:, : self.num_fine] += product[:, size:]
            product = product[:, :size]
        return product, scales

    def columns(self, first: int, last: int) -> Int8Matrix:
        part = object.__new__(Int8Matrix)
        size = len(self.weight) - self.num_fine
        fine = slice(size + min(first, self.num_fine), size + min(last, self.num_fine))
        part.weight = torch.cat([self.weight[first:last], self.weight[fine]])
        part.scales = torch.cat([self.scales[first:last], self.scales[fine]])
        part.bias = None if self.bias is None else self.bias[first:last]
        part.num_fine = fine.stop - fine.start
        return part


def _deepened(rows: Tensor) -> Tensor:
    """Rows (R, 1) get a second number, 0: torch 2.13 multiplies rows of one integer wrongly."""
    return F.pad(rows, (0, 1)) if rows.shape[1] == 1 else rows


def holds_integers(weight: Tensor) -> bool:
    """Whether rows are integers times a scale already, as those that were stored so."""
    integers, scales = quantise(weight)
    return bool(((weight - integers * scales).abs() <= ROUNDING * scales).all())


def quantise(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Integers (R, K), and the scale (R, 1) by which each row of them is to be multiplied."""
    peaks = rows.abs().amax(1, keepdim=True).clamp_(min=TINY)
    return rows.mul(LEVELS / peaks).round_().to(torch.int8), peaks / LEVELS


def has_int8_instructions() -> bool:
    """Whether products of 8-bit integers are fast on this processor, as far as torch knows it.

    `ATEN_CPU_CAPABILITY=default` in the environment makes torch, and so this, think less of the processor.
    """
    if not hasattr(torch, "_int_mm") or not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    return bool(getattr(torch.cpu, "_is_vnni_supported", lambda: False)())
