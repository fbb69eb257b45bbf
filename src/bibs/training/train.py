"""From files of captions to a model directory: what `bibs train` does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bibs.data import Features
from bibs.lengths import LengthPrior
from bibs.models.directory import LENGTHS, MODEL_CARD, load_pair, load_vocabulary, save_length_prior, save_pair
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from bibs.models.storage import packed, unpacked, write_atomically
from bibs.text import Vocabulary
from bibs.training import team
from bibs.training.card import model_card
from bibs.training.corpus import Corpus
from bibs.training.loop import DIRECTIONS, Report, Run, mean_loss
from bibs.training.normalisation import Normalisation, count_normalisation
from bibs.training.output import BestKeeper, Losses, check_output, prepare_output
from bibs.training.pair import train_pair
from bibs.training.precision import check_precision
from bibs.training.record import CHECKPOINTS, Record
from bibs.training.settings import TrainingSettings
from bibs.training.sources import Sources


@dataclass(frozen=True)
class Initial:
    """A trained pair to go on from: its words and its shape are kept, whatever the settings say of them."""

    directory: Path
    vocabulary: Vocabulary
    config: RecurrentConfig

    @staticmethod
    def load(directory: Path) -> Initial:
        forward, backward = load_pair(directory)
        vocabulary = load_vocabulary(directory, forward.vocab_size)
        if forward.config != backward.config:
            raise ValueError(f"`init` must hold two models of one shape, but {directory} holds two")
        return Initial(directory, vocabulary, forward.config)

    @property
    def card(self) -> str:
        path = self.directory / MODEL_CARD
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def apply(self, settings: TrainingSettings) -> TrainingSettings:
        return replace(
            settings,
            hidden_size=self.config.hidden_size,
            embedding_size=self.config.embedding_size,
            num_layers=self.config.num_layers,
            cell=self.config.cell,
            cutoffs=self.config.cutoffs,
        )

    def brings_pictures(self, features: Features | None) -> bool:
        """Whether it goes on reading pictures as it has learnt to. Vectors of another encoder are learnt anew."""
        return features is None or features.encoder in ("", self.config.encoder)

    def condition_size(self, features: Features | None) -> int:
        """How long the vectors are that it is to read."""
        wanted = self.config.condition_size
        if features is None or not self.brings_pictures(features):
            return features.size if features else wanted
        if features.size != wanted:
            raise ValueError(f"`features` must be as long as `init` reads ({wanted}), but are {features.size}")
        return wanted

    def begin(self, run: Run) -> Run:
        weights = self.directory / f"{run.direction}.safetensors"
        if run.normalisation is None:
            config = replace(run.config, encoder=self.config.encoder, condition_axes=self.config.condition_axes)
            run = replace(run, config=config)
        return replace(run, initial=weights, name=f"{run.name}, init {fingerprint_file(weights)}")


@dataclass(frozen=True)
class DirectionResult:
    """Validation losses in nats a token, END included: with pictures (as trained) and without."""

    val_losses: tuple[float, ...]  # one an epoch
    val_loss: float  # of the weights that were kept
    val_loss_without_pictures: float
    seconds: float


@dataclass(frozen=True)
class TrainingResult:
    forward: DirectionResult
    backward: DirectionResult
    vocab_size: int
    unknown_share: float  # of the validation tokens
    train_captions: int
    train_captions_with_pictures: int
    train_tokens: int  # an epoch, in one direction


def train(
    sources: Sources,
    settings: TrainingSettings,
    output: Path,
    *,
    init: Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 120.0,
    in_parallel: bool = True,
    command: Sequence[str] = (),
    report: Callable[[Report], None] = lambda report: None,
) -> TrainingResult:
    """Train both directions and write the model directory `output`: it is whole from the first epoch on.

    `init` is a model directory to go on from: its weights, words and shape are taken. What is needed to go on after a
    kill is kept in `output/training`. `resume` goes on from there, with the same options or more `epochs`. `command` is
    quoted in the model card.
    """
    check_precision(settings.precision)
    features = sources.features.load() if sources.features else None
    size = features.size if features else 0
    initial = Initial.load(init) if init is not None else None
    if initial is not None:
        settings.check_untied("init")
        settings, size = initial.apply(settings), initial.condition_size(features)
    record = check_output(output, Record.of(sources, settings, init=init, command=command), resume)
    corpus = sources.read(features, initial.vocabulary if initial else None)
    settings.check_cutoffs(len(corpus.vocabulary))
    settings = settings.fitted(num_captions=len(corpus.train), vocab_size=len(corpus.vocabulary))
    team.wait()  # all have looked at the output before it changes
    if team.is_first():
        prepare_output(output, record)  # only now, so that bad data leaves nothing behind
    runs = [make_run(one, corpus, settings, size, output, checkpoint_seconds) for one in DIRECTIONS]
    if features is not None and not (initial and initial.brings_pictures(features)):
        normalisation = count_normalisation(features, corpus.train.image_ids)
        runs = [with_pictures(run, features.encoder, normalisation) for run in runs]
    forward, backward = (initial.begin(run) for run in runs) if initial else runs
    write = partial(_write_best, output, (forward, backward), corpus)
    keeper = BestKeeper(output, DIRECTIONS, write)

    def hear(each: Report) -> None:
        if team.is_first():
            keeper.hear(each)
            report(each)

    in_parallel = in_parallel and team.size() == 1  # a team trains one direction at a time, together
    progresses = train_pair((forward, backward), sources.features, hear, in_parallel=in_parallel)
    models, results = [], []
    for run, progress in zip((forward, backward), progresses, strict=True):
        model = _stored(run)
        loss, alone = (mean_loss(model, run.val, reverse=run.reverse, features=shown) for shown in (features, None))
        results.append(DirectionResult(progress.val_losses, loss, alone, progress.seconds))
        models.append(model)
    result = _summary(corpus, results)
    if not team.is_first():
        return result
    card = model_card(settings, models[0].config, asdict(result), record, initial.card if initial else "")
    write_atomically(output / MODEL_CARD, card.encode())
    _write_pair(output, models, corpus, {"training": asdict(settings), "result": asdict(result)})
    return result


def fingerprint_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def make_run(
    direction: str,
    corpus: Corpus,
    settings: TrainingSettings,
    condition_size: int,
    output: Path,
    checkpoint_seconds: float,
) -> Run:
    captions = f"{corpus.train.fingerprint()}-{corpus.val.fingerprint()}"
    # How many processes there are decides which units are dropped.
    captions += f", processes {team.size()}" if team.size() > 1 else ""
    return Run(
        direction=direction,
        settings=settings,
        config=settings.model_config(vocab_size=len(corpus.vocabulary), condition_size=condition_size),
        train=corpus.train,
        val=corpus.val,
        folder=output / CHECKPOINTS,
        name=f"settings {settings.fingerprint()}, vocabulary {corpus.vocabulary.fingerprint()}, captions {captions}",
        checkpoint_seconds=checkpoint_seconds,
    )


def with_pictures(run: Run, encoder: str, normalisation: Normalisation) -> Run:
    """The run of a new model, which is to know mean and spread of its pictures, and what made their vectors."""
    return replace(
        run,
        config=replace(run.config, encoder=encoder, condition_axes=normalisation.num_axes),
        normalisation=normalisation,
        name=f"{run.name}, pictures {normalisation.fingerprint()}",
    )


def _summary(corpus: Corpus, results: Sequence[DirectionResult]) -> TrainingResult:
    forward, backward = results
    return TrainingResult(
        forward=forward,
        backward=backward,
        vocab_size=len(corpus.vocabulary),
        unknown_share=corpus.val.share_of(corpus.vocabulary.unk),
        train_captions=len(corpus.train),
        train_captions_with_pictures=int((corpus.train.pictures >= 0).sum()),
        train_tokens=corpus.train.scored_tokens,
    )


def _write_best(output: Path, runs: Sequence[Run], corpus: Corpus, losses: Losses) -> None:
    models = [_stored(run) for run in runs]
    _write_pair(output, models, corpus, {"training": asdict(runs[0].settings), "val_losses": dict(losses)})


def _stored(run: Run) -> RecurrentModel:
    """The best weights, as the model directory will have them."""
    model = RecurrentModel.load(run.best, run.config)
    if run.settings.storage == "int8":
        model.load_state_dict(unpacked(packed(model.state_dict())))
    return model


def _write_pair(output: Path, models: Sequence[RecurrentModel], corpus: Corpus, details: dict[str, Any]) -> None:
    if not (output / LENGTHS).exists():  # one that was fitted is kept
        words = corpus.train.lengths - 2  # without START and END
        save_length_prior(output, LengthPrior(sentence_counts=LengthPrior.count_sentences(words.tolist())))
    forward, backward = models
    storage = details["training"]["storage"]
    save_pair(output, forward, backward, corpus.vocabulary, storage=storage, details=details)
