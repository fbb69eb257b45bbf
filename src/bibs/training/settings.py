"""What a training run is told, all of it; together with the data it decides the weights to the last bit."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace

from bibs.models.cells import GATES
from bibs.models.recurrent import RecurrentConfig

DEFAULT_CUTOFFS = (500, 2000)
"""Where the data decides: those below the number of words."""

BATCH_SIZES = (128, 16)
"""The most and the fewest captions a step, where the data decides."""

PRECISIONS = ("float32", "bfloat16")
STORAGES = ("float16", "int8")

MAY_CHANGE = ("epochs", "storage")
"""What may differ where a run is resumed."""

STEPS_AN_EPOCH = 150
"""At least, where there are captions enough for batches of the fewest."""

WARMUP_STEPS = 200
"""At most, where the data decides."""


@dataclass(frozen=True)
class TrainingSettings:
    """The learning rate climbs for `warmup_steps`, then falls in a straight line to zero at the last step.

    What is None is decided by the data, so that few captions make enough steps. `batch_size` is then 128, or as small
    as gives an epoch 150 steps, but not below 16; `warmup_steps` are 200, or a tenth of all steps where that is less;
    `cutoffs` are 500 and 2,000, as far as there are more words.

    A run that is resumed with more `epochs` goes on at the rate that a run of so many epochs has at this step: the rate
    rises there once, to fall to zero at the new last step. So its weights are not those of a run that was given all
    epochs from the start. Patience counts anew from there.

    `cutoffs` are the adaptive softmax's; empty means one dense layer. With `tied` a word is read by the vector by which
    it is predicted. `picture_dropout` is the share of pictures that are withheld, so that one model serves with and
    without them. `patience` is the number of epochs without a better validation loss after which training stops; 0
    never stops early. With `ema_decay` above 0 it is not the weights of the last step that are validated and kept, but
    their average, in which a step weighs `ema_decay` times what the next one does. `weight_dropout` is the share of the
    recurrent weights, `word_dropout` that of the words, that are zero for a step (`dropped`). With `precision`
    "bfloat16" the factors of matrix products are rounded to it; weights, gradients and validation stay in float32.
    `storage` is how the weights are written in the end: in float16, or as 8-bit integers with a scale a row.
    """

    hidden_size: int = 512
    embedding_size: int = 512
    num_layers: int = 1
    cell: str = "lstm"
    cutoffs: tuple[int, ...] | None = ()
    tied: bool = False
    dropout: float = 0.3
    picture_dropout: float = 0.1
    weight_dropout: float = 0.0
    word_dropout: float = 0.0
    epochs: int = 7
    batch_size: int | None = None
    learning_rate: float = 2e-3
    warmup_steps: int | None = None
    weight_decay: float = 0.0
    clip_norm: float = 5.0
    patience: int = 2
    ema_decay: float = 0.0
    precision: str = "float32"
    storage: str = "float16"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.cutoffs is not None:
            object.__setattr__(self, "cutoffs", tuple(self.cutoffs))
        for name in ("hidden_size", "embedding_size", "num_layers", "epochs", "batch_size"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)}")
        for name in ("warmup_steps", "weight_decay", "patience", "seed"):
            if getattr(self, name) is not None and getattr(self, name) < 0:
                raise ValueError(f"`{name}` must be at least 0, but is {getattr(self, name)}")
        for name in ("learning_rate", "clip_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be above 0, but is {getattr(self, name)}")
        for name in ("dropout", "picture_dropout", "weight_dropout", "word_dropout", "ema_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 0 and below 1, but is {getattr(self, name)}")
        if self.tied and self.embedding_size != self.hidden_size:
            sizes = f"{self.embedding_size} and {self.hidden_size}"
            raise ValueError(f"`embedding_size` must be `hidden_size` where words are `tied`, but they are {sizes}")
        if self.tied and self.word_dropout:
            raise ValueError(f"`word_dropout` must be 0 where words are `tied`, but is {self.word_dropout}")
        for name, known in (("precision", PRECISIONS), ("storage", STORAGES), ("cell", tuple(GATES))):
            if getattr(self, name) not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}, but is {getattr(self, name)!r}")

    def fitted(self, *, num_captions: int, vocab_size: int) -> TrainingSettings:
        """With what captions and words decide in place of None; only the warm-up waits for the number of steps."""
        batch_size, cutoffs = self.batch_size, self.cutoffs
        if batch_size is None:
            most, fewest = BATCH_SIZES
            batch_size = min(most, max(fewest, num_captions // STEPS_AN_EPOCH))
        if cutoffs is None:
            cutoffs = tuple(cutoff for cutoff in DEFAULT_CUTOFFS if cutoff < vocab_size)
        return replace(self, batch_size=batch_size, cutoffs=cutoffs)

    def model_config(self, *, vocab_size: int, condition_size: int) -> RecurrentConfig:
        assert self.cutoffs is not None  # the settings are fitted to the words
        return RecurrentConfig(
            vocab_size=vocab_size,
            hidden_size=self.hidden_size,
            embedding_size=self.embedding_size,
            num_layers=self.num_layers,
            cell=self.cell,
            condition_size=condition_size,
            dropout=self.dropout,
            cutoffs=self.cutoffs,
        )

    def check_cutoffs(self, vocab_size: int) -> None:
        """Those that somebody asked for must fit."""
        too_high = [cutoff for cutoff in self.cutoffs or () if cutoff >= vocab_size]
        if too_high:
            raise ValueError(
                f"`cutoffs` must be below the number of words ({vocab_size}), but hold {too_high[0]} (a lower "
                "`min_count` keeps more words)"
            )

    def check_untied(self, option: str) -> None:
        """What begins with weights that have word vectors of their own cannot be tied."""
        if self.tied:
            raise ValueError(f"`tied` must be left out with `{option}`")

    def learning_rate_at(self, step: int, total_steps: int) -> float:
        """The learning rate of step 0, 1, ..., total_steps - 1."""
        warmup_steps = min(WARMUP_STEPS, total_steps // 10) if self.warmup_steps is None else self.warmup_steps
        climb = min(1.0, (step + 1) / (warmup_steps + 1))
        return self.learning_rate * climb * (1 - step / total_steps)

    def fingerprint(self) -> str:
        """Of all that must stay as it is where a run is resumed."""
        kept = {name: value for name, value in asdict(self).items() if name not in MAY_CHANGE}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]
