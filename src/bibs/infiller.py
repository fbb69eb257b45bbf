"""Text in, text out: templates are read, searched and written back as they were typed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from bibs.checks import MAX_REQUIRED
from bibs.lengths import UNFITTED, LengthPrior, LengthSettings, range_plan
from bibs.methods import Options, find_fills, pick_settings, say_if_fewer
from bibs.models.directory import load_length_prior, load_models, save_length_prior, save_pair
from bibs.models.ngram import NGramModel
from bibs.search import Fill, StepModel, TracedPass
from bibs.text import Template, Vocabulary, tokenize
from bibs.vision import ImageEncoder, ImageLike, encode_each, make_encoder

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

        `length_prior` says how fills of different lengths compare; `bibs calibrate` fits one. `max_words` is the most
        that a template may have.
        """
        if not isinstance(max_words, int) or max_words < 1:
            raise ValueError(f"`max_words` must be a whole number of at least 1, but is {max_words!r}")
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
        cls,
        directory: str | os.PathLike[str] | None = None,
        *,
        max_words: int = MAX_WORDS,
        device: torch.device | str | None = None,
    ) -> Infiller:
        """Load a model directory; without one, the caption model that comes with the package."""
        path = PRETRAINED if directory is None else Path(directory)
        forward, backward, vocabulary = load_models(path)
        return cls(
            forward=forward,
            backward=backward,
            vocabulary=vocabulary,
            length_prior=load_length_prior(path),
            max_words=max_words,
            device=device,
        )

    @classmethod
    def from_corpus(
        cls, lines: Iterable[str], *, order: int = 3, min_count: int = 1, max_words: int = MAX_WORDS
    ) -> Infiller:
        """Count an n-gram pair from sentences, on the spot."""
        if isinstance(lines, str | bytes) or not isinstance(lines, Iterable):
            one = "one string: " if isinstance(lines, str) else ""
            raise ValueError(f"`lines` must be a list of sentences, but is {one}{lines!r:.60}")
        sentences = []
        for place, line in enumerate(lines):
            if not isinstance(line, str):
                raise ValueError(f"`lines[{place}]` must be a string, but is {line!r:.60}")
            if words := tokenize(line):
                sentences.append(words)
        if not sentences:
            raise ValueError("`lines` must hold at least one word, but hold none")
        vocabulary = Vocabulary.build(sentences, min_count=min_count)
        sequences = [[vocabulary.start, *vocabulary.encode(words), vocabulary.end] for words in sentences]
        forward, backward = NGramModel.train_pair(sequences, vocab_size=len(vocabulary), order=order)
        prior = LengthPrior(sentence_counts=LengthPrior.count_sentences(map(len, sentences)))
        return cls(forward=forward, backward=backward, vocabulary=vocabulary, length_prior=prior, max_words=max_words)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write a model directory for `from_pretrained`; weights of recurrent models are rounded to float16."""
        save_pair(Path(directory), self.forward, self.backward, self.vocabulary)
        save_length_prior(Path(directory), self.length_prior)

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
        templates: list[str] | tuple[str, ...] | Iterator[str],
        *,
        images: Sequence[ImageLike | None] | None = ...,
        must_include: Sequence[str] | Sequence[Sequence[str]] = ...,
        bad_words: Sequence[str] = ...,
        method: str = ...,
        on_error: Literal["raise"] = ...,
        **options: Unpack[Options],
    ) -> list[list[Completion]]: ...

    @overload
    def __call__(
        self,
        templates: list[str] | tuple[str, ...] | Iterator[str],
        *,
        images: Sequence[ImageLike | None] | None = ...,
        must_include: Sequence[str] | Sequence[Sequence[str]] = ...,
        bad_words: Sequence[str] = ...,
        method: str = ...,
        on_error: Literal["return"],
        **options: Unpack[Options],
    ) -> list[list[Completion] | ValueError]: ...

    def __call__(
        self,
        templates: str | Iterable[str],
        *,
        images: Any = None,
        must_include: Sequence[str] | Sequence[Sequence[str]] = (),
        bad_words: Sequence[str] = (),
        method: str = "bibs",
        on_error: Literal["raise", "return"] = "raise",
        **options: Unpack[Options],
    ) -> list[Completion] | list[list[Completion]] | list[list[Completion] | ValueError]:
        """Fill the blanks: one template gives a list of completions, best first; a list gives a list of such lists.

        `images` holds a picture (file, bytes, array or PIL image), a ready vector, or None for each template.
        `must_include` holds up to four words that must each stand somewhere in the blanks of every template, or one
        such list per template; `bad_words` holds words that never fill a blank.
        With a `diversity_penalty` (2, say) the `num_return_sequences` completions differ in more of their words: they
        are searched one after the other, and a word loses so much for each one before that holds it.
        One bad template of a list raises a ValueError for all, or with `on_error="return"` stands in its place as one.
        `bibs.methods.Options` lists all the others, with their defaults.
        """
        if on_error not in ("raise", "return"):
            raise ValueError(f"`on_error` must be 'raise' or 'return', but is {on_error!r}")
        one = isinstance(templates, str)
        options.setdefault("length_prior", self.length_prior)
        pick_settings(LengthSettings, options)  # a bad option is no fault of a template
        if isinstance(templates, bytes) or not isinstance(templates, Iterable):
            raise ValueError(f"`templates` must be a string or a list of strings, but is {templates!r:.60}")
        texts = [templates] if isinstance(templates, str) else list(templates)
        bad = self._bad_tokens(bad_words)
        words = self._required_words(must_include, len(texts), bad)
        conditions = self._conditions(images, len(texts), one)
        parsed: dict[int, Template] = {}  # by their places among the templates
        required: dict[int, list[int]] = {}
        results: list[list[Completion] | ValueError] = []
        for place, (text, condition) in enumerate(zip(texts, conditions, strict=True)):
            results.append([])
            try:
                if isinstance(condition, ValueError):
                    raise condition
                required[place] = self._required_tokens(words[place], bad)
                parsed[place] = self.parse(text, room=len(required[place]), **options)
            except ValueError as error:
                if on_error == "raise":
                    raise error if one or error is condition else ValueError(f"`templates[{place}]`: {error}") from None
                results[place] = error
        given = [conditions[place] for place in parsed]
        found = find_fills(
            self.forward,
            self.backward,
            [template.row(self.vocabulary) for template in parsed.values()],
            method=method,
            conditions=None if all(condition is None for condition in given) else given,
            banned=(self.vocabulary.start, self.vocabulary.end, self.vocabulary.unk, *bad),
            must_include=[required[place] for place in parsed],
            **options,
        )
        for (place, template), fills in zip(parsed.items(), found, strict=True):
            results[place] = [self._complete(template, fill) for fill in fills]
        _say_if_nothing(results)
        say_if_fewer(results, options.get("num_return_sequences", 1))
        return results[0] if one else results  # type: ignore[return-value]

    def encode(self, image: ImageLike) -> Tensor:
        """The vector of a picture, which can stand for it among `images`: to encode it once for many calls."""
        (vector,) = self._conditions(image, 1, True)
        if isinstance(vector, ValueError):
            raise vector
        return vector  # type: ignore[no-any-return]

    def parse(self, text: str, *, room: int = 0, **options: Unpack[Options]) -> Template:
        """Read a template; one that cannot be filled so, or not with `room` words, is a ValueError of one line."""
        if not isinstance(text, str):
            raise ValueError(f"a template must be a string, but is {text!r}")
        template = Template.parse(text)
        if template.num_words > self.max_words:
            raise ValueError(
                f"a template must have at most {self.max_words} words (`max_words`), but has {template.num_words}"
            )
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

    def _required_words(
        self, must_include: Sequence[str] | Sequence[Sequence[str]], count: int, bad: Sequence[int]
    ) -> list[Sequence[str]]:
        """Per template: one list of words for all, or one for each."""
        nested = isinstance(must_include, list | tuple) and any(not isinstance(words, str) for words in must_include)
        if not nested:
            self._required_tokens(must_include, bad)  # wrong for all, or for none
            return [must_include] * count  # type: ignore[list-item]
        if len(must_include) != count:
            raise ValueError(
                f"`must_include` must hold words, or one list of them per template ({count}), but holds "
                f"{len(must_include)}"
            )
        return list(must_include)

    def _required_tokens(self, must_include: Any, bad: Sequence[int]) -> list[int]:
        words = _words("must_include", must_include)
        if len(words) > MAX_REQUIRED:
            raise ValueError(f"`must_include` must hold at most {MAX_REQUIRED} words, but holds {len(words)}")
        for word in words:
            if word not in self.vocabulary:
                raise ValueError(f"`must_include` must hold words that the model knows, but holds {word!r}")
            if self.vocabulary.encode([word])[0] in bad:
                raise ValueError(f"`must_include` must hold no word of `bad_words`, but holds {word!r}")
        return self.vocabulary.encode(words)

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

    def _conditions(self, images: Any, count: int, one: bool) -> list[Any]:
        """Per template: a vector as it is, a picture encoded, None where there is nothing to see, or what is wrong."""
        if images is None:
            return [None] * count
        if one:
            images = [images]
        elif isinstance(images, str | bytes) or not hasattr(images, "__len__"):
            raise ValueError(
                f"`images` must hold one (or None) per template ({count}), but is one picture: {images!r:.60}"
            )
        if len(images) != count:
            raise ValueError(f"`images` must hold one (or None) per template ({count}), but holds {len(images)}")
        size = _condition_size(self.forward)
        if size == 0 and any(image is not None for image in images):
            raise ValueError("`images` must be None for models that were trained on words alone, but is not")
        pictures = {id(image): image for image in images if image is not None and not _is_vector(image)}
        vectors: dict[int, Any] = {}
        if pictures:
            self._encoder = self._encoder or make_encoder(_encoder_name(self.forward))
            vectors = dict(zip(pictures, encode_each(list(pictures.values()), self._encoder), strict=True))
        return [
            None
            if image is None
            else _checked("`images`" if one else f"`images[{place}]`", vectors.get(id(image), image), size)
            for place, image in enumerate(images)
        ]


def _checked(name: str, vector: Any, size: int | None) -> Tensor | ValueError:
    """A vector that a model can read, or what is wrong with it."""
    if isinstance(vector, ValueError):
        return ValueError(f"{name}: {vector}")
    tensor = torch.as_tensor(vector)  # (D,)
    if size not in (None, len(tensor)):
        return ValueError(f"{name} must hold {size} numbers, but holds {len(tensor)}")
    wrong = tensor[~torch.isfinite(tensor)]
    return ValueError(f"{name} must hold finite numbers, but holds {wrong[0].item()}") if len(wrong) else tensor


def _say_if_nothing(results: Sequence[Sequence[Completion] | ValueError]) -> None:
    empty = [place for place, found in enumerate(results) if not isinstance(found, ValueError) and not found]
    if empty:
        warnings.warn(
            f"nothing was found for `templates[{empty[0]}]`"
            + (f" and {len(empty) - 1} others" if empty[1:] else "")
            + ": no fill has a probability above 0 (fewer `bad_words` or `must_include`, or other lengths, may help)",
            stacklevel=3,
        )


def _encoder_name(model: StepModel) -> str:
    """The encoder whose vectors a model was trained on; one that does not say had the first that there was."""
    config = getattr(model, "config", None)
    return getattr(config, "encoder", "") or "lite0"


def _condition_size(model: StepModel) -> int | None:
    """How many numbers a model reads of a picture, 0 for none; None where only its owner knows."""
    if isinstance(model, NGramModel):
        return 0
    return getattr(getattr(model, "config", None), "condition_size", None)


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
