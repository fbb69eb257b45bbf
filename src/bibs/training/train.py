"""From files of captions to a model directory: what `bibs train` does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bibs.data import VAL_SHARE, Features
from bibs.lengths import LengthPrior
from bibs.models.directory import CONFIG, LENGTHS, MODEL_CARD, load_pair, load_vocabulary, save_length_prior, save_pair
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from bibs.models.storage import make_directory, write_atomically
from bibs.text import Vocabulary
from bibs.training.card import model_card
from bibs.training.corpus import Corpus, read_corpus
from bibs.training.loop import DIRECTIONS, Report, Run, mean_loss
from bibs.training.normalisation import Normalisation, count_normalisation
from bibs.training.pair import FeatureFiles, train_pair
from bibs.training.settings import TrainingSettings

CHECKPOINTS = "training"
"""The folder, inside the model directory, of what is needed to resume."""


@dataclass(frozen=True)
class Sources:
    """The files to train on: captions with pictures, captions alone, and image vectors."""

    data: tuple[Path, ...]
    texts: tuple[Path, ...] = ()
    features: FeatureFiles | None = None
    min_count: int = 5
    allow_missing_features: bool = False
    val_share: float = VAL_SHARE  # held out where the data has no split `val`

    def __post_init__(self) -> None:
        if not 0 < self.val_share < 1:
            raise ValueError(f"`val_share` must be above 0 and below 1, but is {self.val_share}")

    def read(self, features: Features | None, vocabulary: Vocabulary | None = None) -> Corpus:
        return read_corpus(
            self.data,
            self.texts,
            features=features,
            min_count=self.min_count,
            allow_missing_features=self.allow_missing_features,
            vocabulary=vocabulary,
            val_share=self.val_share,
        )


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
    """Train both directions and write the model directory `output`.

    `init` is a model directory to go on from: its weights, words and shape are taken. What is needed to go on after a
    kill is kept in `output/training`. `command` is quoted in the model card.
    """
    features = sources.features.load() if sources.features else None
    size = features.size if features else 0
    initial = Initial.load(init) if init is not None else None
    if initial is not None:
        settings, size = initial.apply(settings), initial.condition_size(features)
    corpus = sources.read(features, initial.vocabulary if initial else None)
    settings.check_cutoffs(len(corpus.vocabulary))
    prepare_output(output, resume)  # only now, so that bad data leaves nothing behind
    runs = [make_run(one, corpus, settings, size, output, checkpoint_seconds) for one in DIRECTIONS]
    if features is not None and not (initial and initial.brings_pictures(features)):
        normalisation = count_normalisation(features, corpus.train.image_ids)
        runs = [with_pictures(run, features.encoder, normalisation) for run in runs]
    forward, backward = (initial.begin(run) for run in runs) if initial else runs
    progresses = train_pair((forward, backward), sources.features, report, in_parallel=in_parallel)
    models, results = [], []
    for run, progress in zip((forward, backward), progresses, strict=True):
        model = RecurrentModel.load(run.best, run.config)
        alone = mean_loss(model, run.val, reverse=run.reverse, features=None)
        losses = progress.val_losses
        results.append(DirectionResult(losses, min(losses), alone, progress.seconds))
        models.append(model)
    result = _summary(corpus, results)
    _write(output, corpus, settings, models, result, command, initial)
    return result


def prepare_output(output: Path, resume: bool) -> None:
    folder = output / CHECKPOINTS
    if not resume and ((output / CONFIG).exists() or any(folder.glob("*.safetensors"))):
        raise ValueError(f"{output} already holds a training run: continue it with --resume, or choose another output")
    make_directory(folder)
    for leftover in folder.glob(".*.partial"):  # of a run that was killed while it wrote
        leftover.unlink(missing_ok=True)


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


def _write(
    output: Path,
    corpus: Corpus,
    settings: TrainingSettings,
    models: Sequence[RecurrentModel],
    result: TrainingResult,
    command: Sequence[str],
    initial: Initial | None,
) -> None:
    card = model_card(settings, models[0].config, asdict(result), command, initial.card if initial else "")
    write_atomically(output / MODEL_CARD, card.encode())
    if not (output / LENGTHS).exists():  # one that was fitted is kept
        words = corpus.train.lengths - 2  # without START and END
        save_length_prior(output, LengthPrior(sentence_counts=LengthPrior.count_sentences(words.tolist())))
    forward, backward = models
    details = {"training": asdict(settings), "result": asdict(result)}
    save_pair(output, forward, backward, corpus.vocabulary, details=details)
