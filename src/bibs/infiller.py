"""Text in, text out: templates are read, searched and written back as they were typed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from bibs.lengths import UNFITTED, LengthPrior, LengthSettings, range_plan
from bibs.methods import MAX_REQUIRED, Options, fill_templates, pick_settings
from bibs.models.directory import load_length_prior, load_models
from bibs.models.ngram import NGramModel
from bibs.search import Fill, StepModel, TracedPass
from bibs.text import Template, Vocabulary, tokenize
from bibs.vision import ImageEncoder, ImageLike, make_encoder

PRETRAINED = Path(__file__).parent / "pretrained" / "coco"

MAX_WORDS = 100


@dataclass(frozen=True)
class Completion:
    """One way to fill the blanks of a template."""

    text: str  # the fixed text as typed, the blanks filled
    tokens: tuple[int, ...]  # of the whole sentence, START and END included
    spans: tuple[str, ...]  # what fills each blank
    score: float  # forward_score + backward_score
    ranking_score: float  # what the method sorts by
    forward_score: float
    backward_score: float
    rounds: int = 0
    trace: tuple[TracedPass, ...] = ()


class Infiller:
    """Fills the blanks of templates with a left-to-right and a right-to-left model of the same vocabulary."""

    def __init__(
        self,
        *,
        forward: StepModel,
        backward: StepModel,
        vocabulary: Vocabulary,
        encoder: ImageEncoder | None = None,
        length_prior: LengthPrior = UNFITTED,
        max_words: int = MAX_WORDS,
        device: torch.device | str | None = None,
    ) -> None:
        """`encoder` turns pictures into the vectors that the models are conditioned on.

        `length_prior` says how fills of different lengths compare; `bibs calibrate` fits one.
        """
        for name, model in (("forward", forward), ("backward", backward)):
            if model.vocab_size != len(vocabulary):
                raise ValueError(
                    f"`{name}` must have the size of `vocabulary` ({len(vocabulary)}), but has {model.vocab_size}"
                )
        self.forward = _on_device(forward, device)
        self.backward = _on_device(backward, device)
        self.vocabulary = vocabulary
        self.length_prior = length_prior
        self.max_words = max_words
        self._encoder = encoder

    @classmethod
    def from_pretrained(
        cls, directory: str | os.PathLike[str] | None = None, *, device: torch.device | str | None = None
    ) -> Infiller:
        """Load a model directory; without one, the caption model that comes with the package."""
        path = PRETRAINED if directory is None else Path(directory)
        forward, backward, vocabulary = load_models(path)
        return cls(
            forward=forward,
            backward=backward,
            vocabulary=vocabulary,
            length_prior=load_length_prior(path),
            device=device,
        )

    @classmethod
    def from_corpus(cls, lines: Iterable[str], *, order: int = 3, min_count: int = 1) -> Infiller:
        """Count an n-gram pair from sentences, on the spot."""
        sentences = [words for line in lines if (words := tokenize(line))]
        if not sentences:
            raise ValueError("`lines` must hold at least one word, but hold none")
        vocabulary = Vocabulary.build(sentences, min_count=min_count)
        sequences = [[vocabulary.start, *vocabulary.encode(words), vocabulary.end] for words in sentences]
        forward, backward = NGramModel.train_pair(sequences, vocab_size=len(vocabulary), order=order)
        prior = LengthPrior(sentence_counts=LengthPrior.count_sentences(map(len, sentences)))
        return cls(forward=forward, backward=backward, vocabulary=vocabulary, length_prior=prior)

    @overload
    def __call__(
        self,
        templates: str,
        *,
        images: ImageLike | None = ...,
        must_include: Sequence[str] = ...,
        bad_words: Sequence[str] = ...,
        method: str = ...,
        **options: Unpack[Options],
    ) -> list[Completion]: ...

    @overload
    def __call__(
        self,
        templates: list[str] | tuple[str, ...],
        *,
        images: Sequence[ImageLike | None] | None = ...,
        must_include: Sequence[str] | Sequence[Sequence[str]] = ...,
        bad_words: Sequence[str] = ...,
        method: str = ...,
        **options: Unpack[Options],
    ) -> list[list[Completion]]: ...

    def __call__(
        self,
        templates: str | list[str] | tuple[str, ...],
        *,
        images: Any = None,
        must_include: Sequence[str] | Sequence[Sequence[str]] = (),
        bad_words: Sequence[str] = (),
        method: str = "bibs",
        **options: Unpack[Options],
    ) -> list[Completion] | list[list[Completion]]:
        """Fill the blanks: one template gives a list of completions, best first; a list gives a list of such lists.

        `images` holds a picture (file, array or PIL image), a ready vector, or None for each template.
        `must_include` holds up to four words that must each stand somewhere in the blanks of every template, or one
        such list per template; `bad_words` holds words that never fill a blank.
        With a `diversity_penalty` (2, say) the `num_return_sequences` completions differ in more of their words: they
        are searched one after the other, and a word loses so much for each one before that holds it.
        `bibs.methods.Options` lists all the others, with their defaults.
        """
        one = isinstance(templates, str)
        options.setdefault("length_prior", self.length_prior)
        texts = [templates] if isinstance(templates, str) else templates
        bad = self._bad_tokens(bad_words)
        required = self._required_tokens(must_include, len(texts), bad)
        parsed = []
        for number, text in enumerate(texts):
            try:
                parsed.append(self.parse(text, room=len(required[number]), **options))
            except ValueError as error:
                raise error if one else ValueError(f"`templates[{number}]`: {error}") from None
        found = fill_templates(
            self.forward,
            self.backward,
            [template.row(self.vocabulary) for template in parsed],
            method=method,
            conditions=self._conditions([images] if one and images is not None else images, len(parsed)),
            banned=(self.vocabulary.start, self.vocabulary.end, self.vocabulary.unk, *bad),
            must_include=required,
            **options,
        )
        completions = [
            [self._complete(template, fill) for fill in fills] for template, fills in zip(parsed, found, strict=True)
        ]
        return completions[0] if one else completions

    def parse(self, text: str, *, room: int = 0, **options: Unpack[Options]) -> Template:
        """Read a template; one that cannot be filled so, or not with `room` words, is a ValueError of one line."""
        if not isinstance(text, str):
            raise ValueError(f"a template must be a string, but is {text!r}")
        template = Template.parse(text)
        if template.num_words > self.max_words:
            raise ValueError(f"a template must have at most {self.max_words} words, but has {template.num_words}")
        longest = [blank.maximum for blank in template.blanks if blank.maximum is not None]
        if len(longest) == len(template.blanks) and sum(longest) < room:
            raise ValueError(
                f"a template must have room for the words of `must_include` ({room}), but has {sum(longest)} free slots"
            )
        range_plan(template.row(self.vocabulary), room, pick_settings(LengthSettings, options))
        return template

    def _bad_tokens(self, words: Sequence[str]) -> list[int]:
        """What the model does not know cannot appear."""
        return [self.vocabulary.encode([word])[0] for word in _words("bad_words", words) if word in self.vocabulary]

    def _required_tokens(
        self, must_include: Sequence[str] | Sequence[Sequence[str]], count: int, bad: Sequence[int]
    ) -> list[list[int]]:
        """Per template: one list of words for all, or one for each."""
        nested = not isinstance(must_include, str) and any(not isinstance(words, str) for words in must_include)
        if nested and len(must_include) != count:
            raise ValueError(
                f"`must_include` must hold words, or one list of them per template ({count}), but holds "
                f"{len(must_include)}"
            )
        lists = [_words("must_include", words) for words in (must_include if nested else [must_include])]
        for words in lists:
            if len(words) > MAX_REQUIRED:
                raise ValueError(f"`must_include` must hold at most {MAX_REQUIRED} words, but holds {len(words)}")
            for word in words:
                if word not in self.vocabulary:
                    raise ValueError(f"`must_include` must hold words that the model knows, but holds {word!r}")
                if self.vocabulary.encode([word])[0] in bad:
                    raise ValueError(f"`must_include` must hold no word of `bad_words`, but holds {word!r}")
        required = [self.vocabulary.encode(words) for words in lists]
        return required if nested else required * count

    def _complete(self, template: Template, fill: Fill) -> Completion:
        blanks = template.cut(fill.tokens, fill.lengths)
        text, spans = template.render([self.vocabulary.decode(tokens) for tokens in blanks])
        return Completion(
            text=text,
            tokens=fill.tokens,
            spans=spans,
            score=fill.score,
            ranking_score=fill.ranking_score,
            forward_score=fill.forward_score,
            backward_score=fill.backward_score,
            rounds=fill.rounds,
            trace=fill.trace,
        )

    def _conditions(self, images: Sequence[Any] | None, count: int) -> list[Any] | None:
        """Vectors as they are, pictures encoded, None where there is nothing to see."""
        if images is None:
            return None
        if len(images) != count:
            raise ValueError(f"`images` must hold one (or None) per template ({count}), but holds {len(images)}")
        conditions: list[Any] = [image if _is_vector(image) else None for image in images]
        pictures = {id(image): image for image in images if image is not None and not _is_vector(image)}
        if pictures:
            self._encoder = self._encoder or make_encoder(_encoder_name(self.forward))
            encoded = torch.from_numpy(np.asarray(self._encoder.encode(list(pictures.values()))))  # (pictures, D)
            vectors = dict(zip(pictures, encoded, strict=True))
            conditions = [vectors.get(id(image), known) for image, known in zip(images, conditions, strict=True)]
        return None if all(condition is None for condition in conditions) else conditions


def _encoder_name(model: StepModel) -> str:
    """The encoder whose vectors a model was trained on; one that does not say had the first that there was."""
    config = getattr(model, "config", None)
    return getattr(config, "encoder", "") or "lite0"


def _on_device(model: StepModel, device: torch.device | str | None) -> StepModel:
    """A model that is no module and no n-gram is its owner's business."""
    return model.to(device) if device is not None and isinstance(model, (nn.Module, NGramModel)) else model


def _words(name: str, words: Any) -> list[str]:
    """Single words as the model reads them, each once."""
    if isinstance(words, str) or not isinstance(words, Sequence):
        raise ValueError(f"`{name}` must be a list of words, but is {words!r}")
    read = []
    for word in words:
        tokens = tokenize(word) if isinstance(word, str) else []
        if len(tokens) != 1:
            raise ValueError(f"`{name}` must hold single words, but holds {word!r}")
        read += tokens
    return list(dict.fromkeys(read))


def _is_vector(image: Any) -> bool:
    return isinstance(image, (Tensor, np.ndarray)) and image.ndim == 1
