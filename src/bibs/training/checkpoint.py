"""The state of a run in one safetensors file, written beside and renamed, so that a kill finds the old or the new.

Chance at step k is drawn from the seed and k alone, so weights, their average, Adam's moments and k are all there is
to keep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from bibs.models.storage import check_tensors, load_metadata, load_tensors, save_tensors

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True)
class Progress:
    """Where a run stands. `val_losses` has one mean loss an epoch; `run` names the settings, data and words."""

    run: str
    step: int = 0  # steps done
    val_losses: tuple[float, ...] = ()
    finished: bool = False
    seconds: float = 0.0  # spent training, over all resumes
    epochs: int = 0  # how many it is to have
    patient_from: int = 0  # the epoch from which patience counts: where it was given more

    @property
    def best_epoch(self) -> int:
        return min(range(len(self.val_losses)), key=lambda epoch: self.val_losses[epoch])

    @property
    def stale_epochs(self) -> int:
        """How many epochs have passed without a better loss, since patience counts."""
        return len(self.val_losses) - max(self.best_epoch + 1, self.patient_from)

    def with_epochs(self, epochs: int) -> Progress:
        """The same run with more epochs to go: one that had ended goes on."""
        if epochs <= self.epochs:
            return self
        return replace(self, finished=False, epochs=epochs, patient_from=len(self.val_losses))


def save_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, average: nn.Module | None = None
) -> None:
    tensors = {f"weights/{name}": weight for name, weight in model.state_dict().items()}
    if average is not None:
        tensors |= {f"average/{name}": weight for name, weight in average.state_dict().items()}
    for name, weight in model.named_parameters():
        for moment, value in optimizer.state[weight].items():
            tensors[f"{moment}/{name}"] = value
    save_tensors(path, tensors, {"progress": json.dumps(asdict(progress))})


def load_progress(path: Path) -> Progress:
    try:
        values = json.loads(load_metadata(path)["progress"])
        return Progress(**{**values, "val_losses": tuple(values["val_losses"])})
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a checkpoint of `bibs train` ({error})") from error


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None = None
) -> Progress:
    """Put the weights, their average and the optimizer back as they were; returns where the run stood."""
    progress = load_progress(path)
    tensors = load_tensors(path)
    for prefix, module in (("weights", model), ("average", average)):
        if module is not None:
            weights = _part(tensors, prefix)
            check_tensors(weights, module.state_dict(), path)
            module.load_state_dict(weights)
    moments = [_part(tensors, moment) for moment in MOMENTS]
    state: dict[int, dict[str, Tensor]] = {}
    for index, (name, _) in enumerate(model.named_parameters()):
        if name in moments[0]:  # a weight that no batch has used yet has no moments
            state[index] = {moment: part[name] for moment, part in zip(MOMENTS, moments, strict=True)}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return progress


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(f"{prefix}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}/")
    }
