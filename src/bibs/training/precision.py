"""Products of bfloat16 in training: about twice as fast where the processor has instructions for them."""

from __future__ import annotations

import subprocess
import sys
import warnings

import torch


def check_precision(precision: str) -> None:
    """Some machines say that they have bfloat16, and end a process that multiplies with it; others do it slowly."""
    if precision == "float32":
        return
    if not multiplies_bfloat16():
        raise ValueError(f"`precision` must be float32 on this machine, where {precision} ends the process")
    if not getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)():
        warnings.warn(
            "`precision` is bfloat16, but this processor has no instructions for it: it is slow", stacklevel=3
        )


def multiplies_bfloat16() -> bool:
    """Whether a process outlives it."""
    product = "import torch; a = torch.ones(512, 512, dtype=torch.bfloat16); a @ a"
    return not subprocess.run([sys.executable, "-c", product], capture_output=True, check=False).returncode
