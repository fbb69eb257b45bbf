"""The model card: what a model was trained on, how, how well it does and where it fails."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from bibs.models.recurrent import RecurrentConfig
from bibs.training.record import Record
from bibs.training.settings import TrainingSettings

_CARD = """\
# {title}

Two recurrent networks of the same {texts}, one that reads left to right and one that reads right to left, for
filling blanks with Bidirectional Beam Search (Sun, Lee and Batra, CVPR 2017).

## Network

{cell} in each direction, {layers} layer(s) of {hidden}, embeddings of {embedding}, {vocab} words (three of them
special). {picture}{softmax}

## Data

{captions:,} {texts} ({tokens:,} tokens an epoch and direction){with_pictures}. Words are
lower case, without punctuation; words seen too rarely in training are `<unk>`.
{licence}
## Training

Maximum likelihood over whole {texts}, Adam, {epochs} epochs at most, batches of {batch} {texts} of like length,
learning rate {rate} falling to zero, dropout {dropout}, {withheld}seed {seed}.
{tied}{rounded}{stored}{dropped}{average}{longer}{minutes:.0f} minutes a direction.
{command}{before}
## Validation loss

Mean negative log probability in nats a token, END included, unknown words as `<unk>` ({unknown:.2%} of the tokens).

| direction | {shown} | without pictures |
|---|---|---|
| left to right | {forward:.3f} | {forward_alone:.3f} |
| right to left | {backward:.3f} | {backward_alone:.3f} |

By epoch: left to right {forward_epochs}; right to left {backward_epochs}.

## Known weaknesses

- {style}
- It repeats the biases of its {texts}{biases}.
{seen}- Rare words, names, numbers and {long} are poorly modelled.
"""

_CAPTIONS = {
    "texts": "captions",
    "style": "It writes the style of short, plain captions and knows little beyond them.",
    "biases": ", such as guesses at the sex, age or trade of people in a picture",
    "seen": "- It names objects that often stand together even where a picture does not show them, and counts badly.\n",
    "long": "anything longer than about 20 words",
}

_TEXT = {
    "texts": "sentences",
    "style": "It writes the style of the text that it was trained on and knows little beyond it.",
    "biases": "",
    "seen": "",
    "long": "sentences longer than those of its text",
}

_PICTURE = "The picture, a vector of {size}, less the mean of the training pictures, is the first input."

_DROPPED = "A share of {weights} of the recurrent weights and {words} of the word vectors was zero at each step.\n"

_TIED = "In training a word was read by the vector by which it is predicted (tied words).\n"

_ROUNDED = "Matrix products of the training had factors rounded to bfloat16.\n"

_STORED = (
    "The weights are stored as 8-bit integers, with a scale a row; the losses below are those of the stored ones.\n"
)

_AVERAGE = "The weights are a moving average over the steps (decay {decay}).\n"

_LONGER = "The run was given more epochs while it went on (before: {epochs}), so its learning rate rose there.\n"

_COCO_LICENCE = """
The captions are those of Microsoft COCO (Lin et al., 2014; Chen et al., 2015), licensed under CC BY 4.0. The
pictures, of which only feature vectors were used, keep their owners' licences.{encoder}
"""

_ENCODERS = {
    "efficientnet-lite0": "EfficientNet-Lite0 trained on ImageNet (Apache-2.0)",
    "efficientnet-lite2-rms": "EfficientNet-Lite2 trained on ImageNet (Apache-2.0), pooled by root mean square",
}


def model_card(
    settings: TrainingSettings,
    config: RecurrentConfig,
    result: Mapping[str, Any],
    record: Record,
    before: str = "",
) -> str:
    """`result` is a `TrainingResult` as a dictionary, `before` the card of the model that the training went on from."""
    forward, backward = result["forward"], result["backward"]
    pictured = config.condition_size > 0
    text = " ".join(shlex.quote(_without_folders(word)) for word in record.command)
    files = [PurePath(path).name.lower() for name in ("data", "texts") for path in record.options[name]]
    of_coco = any("coco" in file for file in files)
    kind = "Caption model" if pictured or of_coco else "Text model"
    return _CARD.format(
        **(_CAPTIONS if pictured or of_coco else _TEXT),
        title="COCO caption model" if of_coco else kind,
        cell=config.cell.upper(),
        layers=config.num_layers,
        hidden=config.hidden_size,
        embedding=config.embedding_size,
        vocab=f"{config.vocab_size:,}",
        picture=f"{_PICTURE.format(size=config.condition_size)}\n" if pictured else "",
        softmax=f"Adaptive softmax, cut at {', '.join(map(str, config.cutoffs))}." if config.cutoffs else "",
        captions=result["train_captions"],
        tokens=result["train_tokens"],
        with_pictures=f", {result['train_captions_with_pictures']:,} of them with a picture" if pictured else "",
        licence=_COCO_LICENCE.format(encoder=_encoder(config)) if of_coco else "",
        epochs=settings.epochs,
        batch=settings.batch_size,
        rate=settings.learning_rate,
        dropout=settings.dropout,
        withheld=f"pictures withheld {settings.picture_dropout:.0%} of the time, " if pictured else "",
        seed=settings.seed,
        tied=_TIED if settings.tied else "",
        rounded=_ROUNDED if settings.precision == "bfloat16" else "",
        stored=_STORED if settings.storage == "int8" else "",
        dropped=_DROPPED.format(weights=settings.weight_dropout, words=settings.word_dropout)
        if settings.weight_dropout or settings.word_dropout
        else "",
        average=_AVERAGE.format(decay=settings.ema_decay) if settings.ema_decay else "",
        longer=_LONGER.format(epochs=", ".join(map(str, record.earlier_epochs))) if record.earlier_epochs else "",
        minutes=max(forward["seconds"], backward["seconds"]) / 60,
        command=f"\n    {text}\n" if text else "",
        before=f"\nThe weights it began with (`--init`) had been trained so:\n\n{_training_of(before)}\n"
        if before
        else "",
        unknown=result["unknown_share"],
        shown="with pictures" if pictured else "as trained",
        forward=forward["val_loss"],
        forward_alone=forward["val_loss_without_pictures"],
        backward=backward["val_loss"],
        backward_alone=backward["val_loss_without_pictures"],
        forward_epochs=", ".join(f"{loss:.3f}" for loss in forward["val_losses"]),
        backward_epochs=", ".join(f"{loss:.3f}" for loss in backward["val_losses"]),
    )


def _encoder(config: RecurrentConfig) -> str:
    name = _ENCODERS.get(config.encoder, config.encoder)
    return f" Image vectors are those of\n{name}." if name else ""


def _training_of(card: str) -> str:
    """What a card says of its model's training."""
    return card.partition("## Training\n")[2].partition("\n## ")[0].strip()


def _without_folders(word: str) -> str:
    """A path in the command becomes its last part: the card travels, the folders of one machine do not."""
    return PurePath(word).name if "/" in word else word
