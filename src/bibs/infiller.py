"""Text in, text out: templates are read, searched and written back as they were typed."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from bibs.checks import check_states
from bibs.constraints import least_words
from bibs.lengths import UNFITTED, LengthPrior, LengthSettings, range_plan
from bibs.methods import Options, find_fills, pick_settings, say_if_fewer
from bibs.models.directory import load_length_prior, load_models, save_length_prior, save_pair
from bibs.models.int8 import choose_precision, in_precision
from bibs.models.ngram import NGramModel
from bibs.models.products import has_int8_instructions
from bibs.pictures import PictureReader
from bibs.search import Fill, StepModel, TracedPass
from bibs.text import SPECIALS, Phrase, Template, Vocabulary, banned_words, required_phrases, tokenize
from bibs.vision import ImageEncoder, ImageLike
from bibs.words import Reasons, Word, find_reasons, words_of

if TYPE_CHECKING:
    from bibs.huggingface import SubwordInfiller

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
    words: tuple[Word, ...] = ()  # of `text`, where `alternatives` are asked for
    start_score: float | None = None  # log P_g(START | all words): with the words' `backward`, backward_score
    end_score: float | None = None  # log P_f(END | all words): with the words' `forward`, forward_score

    @staticmethod
    def of(fill: Fill, text: str, spans: tuple[str, ...]) -> Completion:
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
        precision: str = "auto",
    ) -> None:
        """`encoder` turns pictures into the vectors that the models are conditioned on.

        `length_prior` says how fills of different lengths compare; `bibs calibrate` fits one. `max_words` is the most
        that a template may have. `precision` is that of the passes: "float32"; "int8", several times as fast for
        recurrent models where the processor has the instructions; or "auto", int8 where it has them. Scores are
        float32 in any case. `self.precision` says which it became.
        """
        if not isinstance(vocabulary, Vocabulary):
            raise ValueError(f"`vocabulary` must be a Vocabulary, but is {vocabulary!r:.60}")
        options: Options = {"length_prior": length_prior}
        pick_settings(LengthSettings, options)  # refuses what is none
        for name, model in (("forward", forward), ("backward", backward)):
            if not isinstance(getattr(model, "vocab_size", None), int):
                raise ValueError(f"`{name}` must be a model with a whole number `vocab_size`, but is {model!r:.60}")
            if model.vocab_size != len(vocabulary):
                raise ValueError(
                    f"`{name}` must have the size of `vocabulary` ({len(vocabulary)}), but has {model.vocab_size}"
                )
        self.forward = _on_device(forward, device)
        self.backward = _on_device(backward, device)
        self.precision = choose_precision(precision, (self.forward, self.backward))
        if self.precision == "int8" and not has_int8_instructions():
            warnings.warn(
                "`precision` is int8, but this processor has no instructions for it, and float32 is many times as fast",
                stacklevel=2,
            )
        self.vocabulary = vocabulary
        self.length_prior = length_prior
        self.max_words = _whole_number("max_words", max_words)
        self._pictures = PictureReader(forward, encoder)

    @classmethod
    def from_pretrained(
        cls,
        directory: str | os.PathLike[str] | None = None,
        *,
        max_words: int = MAX_WORDS,
        device: torch.device | str | None = None,
        precision: str = "auto",
    ) -> Infiller:
        """Load a model directory; without one, the caption model that comes with the package."""
        path = PRETRAINED if directory is None else _path(directory)
        forward, backward, vocabulary = load_models(path)
        return cls(
            forward=forward,
            backward=backward,
            vocabulary=vocabulary,
            length_prior=load_length_prior(path),
            max_words=max_words,
            device=device,
            precision=precision,
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
        vocabulary = Vocabulary.build(sentences, min_count=_whole_number("min_count", min_count))
        if len(vocabulary) == len(SPECIALS):
            raise ValueError(f"`min_count` must leave at least one word, but is {min_count}")
        sequences = [[vocabulary.start, *vocabulary.encode(words), vocabulary.end] for words in sentences]
        order = min(_whole_number("order", order), max(map(len, sequences)))  # a higher one would see nothing more
        forward, backward = NGramModel.train_pair(sequences, vocab_size=len(vocabulary), order=order)
        prior = LengthPrior(sentence_counts=LengthPrior.count_sentences(map(len, sentences)))
        return cls(forward=forward, backward=backward, vocabulary=vocabulary, length_prior=prior, max_words=max_words)

    @staticmethod
    def from_huggingface(forward: Any, backward: Any, tokenizer: Any = None, **how: Any) -> SubwordInfiller:
        """Two causal language models of transformers, of which `backward` was trained on tokens in reversed order.

        Each is a directory, a name on the hub, or a network; see `bibs.huggingface.SubwordInfiller` for the rest.
        """
        from bibs.huggingface import SubwordInfiller

        return SubwordInfiller.load(forward, backward, tokenizer, **how)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write a model directory for `from_pretrained`; weights of recurrent models are rounded to float16."""
        path = _path(directory)
        save_pair(path, self.forward, self.backward, self.vocabulary)
        save_length_prior(path, self.length_prior)

    @overload
    def __call__(
        self,
        templates: str,
        *,
        images: ImageLike | None = ...,
        must_include: Sequence[str] = ...,
        bad_words: Sequence[str] = ...,
        method: str = ...,
        alternatives: int | None = ...,
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
        alternatives: int | None = ...,
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
        alternatives: int | None = ...,
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
        alternatives: int | None = None,
        on_error: Literal["raise", "return"] = "raise",
        **options: Unpack[Options],
    ) -> list[Completion] | list[list[Completion]] | list[list[Completion] | ValueError]:
        """Fill the blanks: one template gives a list of completions, best first; a list gives a list of such lists.

        `images` holds a picture (file, bytes, array or PIL image), a ready vector, or None for each template.
        `must_include` holds words and phrases that must each stand somewhere in the blanks of every template, or one
        such list per template; `bad_words` holds words that never fill a blank.
        With a `diversity_penalty` (2, say) the `num_return_sequences` completions differ in more of their words: they
        are searched one after the other, and a word loses so much for each one before that holds it.
        With `alternatives` (5, say) each completion has its `words` with their log probabilities, and so many others
        that would have fitted where a word fills a blank; 0 gives the words alone.
        One bad template of a list raises a ValueError for all, or with `on_error="return"` stands in its place as one.
        `bibs.methods.Options` lists all the others, with their defaults.
        """
        if on_error not in ("raise", "return"):
            raise ValueError(f"`on_error` must be 'raise' or 'return', but is {on_error!r}")
        if alternatives is not None and (type(alternatives) is not int or alternatives < 0):
            raise ValueError(f"`alternatives` must be None or a whole number of at least 0, but is {alternatives!r}")
        one = isinstance(templates, str)
        options.setdefault("length_prior", self.length_prior)
        pick_settings(LengthSettings, options)  # a bad option is no fault of a template
        if isinstance(templates, bytes) or not isinstance(templates, Iterable):
            raise ValueError(f"`templates` must be a string or a list of strings, but is {templates!r:.60}")
        texts = [templates] if isinstance(templates, str) else list(templates)
        bad = banned_words("bad_words", bad_words, self.vocabulary)
        words = self._required_words(must_include, len(texts), bad)
        conditions = self._pictures.read(images, len(texts), one=one)
        parsed: dict[int, Template] = {}  # by their places among the templates
        required: dict[int, list[Phrase]] = {}
        results: list[list[Completion] | ValueError] = []
        for place, (text, condition) in enumerate(zip(texts, conditions, strict=True)):
            results.append([])
            try:
                if isinstance(condition, ValueError):
                    raise condition
                required[place] = self._required_tokens(words[place], bad)
                parsed[place] = self.parse(text, room=least_words(tuple(required[place])), **options)
            except ValueError as error:
                if on_error == "raise":
                    raise error if one or error is condition else ValueError(f"`templates[{place}]`: {error}") from None
                results[place] = error
        given = [conditions[place] for place in parsed]
        banned = (self.vocabulary.start, self.vocabulary.end, self.vocabulary.unk, *bad)
        found = find_fills(
            in_precision(self.forward, self.precision),
            in_precision(self.backward, self.precision),
            [template.row(self.vocabulary) for template in parsed.values()],
            method=method,
            conditions=None if all(condition is None for condition in given) else given,
            banned=banned,
            must_include=[required[place] for place in parsed],
            **options,
        )
        reasons = self._reasons(list(parsed.values()), found, given, banned, alternatives)
        for (place, template), fills in zip(parsed.items(), found, strict=True):
            results[place] = [self._complete(template, fill, next(reasons)) for fill in fills]
        _say_if_nothing(results)
        say_if_fewer(results, options.get("num_return_sequences", 1))
        return results[0] if one else results  # type: ignore[return-value]

    def encode(self, image: ImageLike) -> Tensor:
        """The vector of a picture, which can stand for it among `images`: to encode it once for many calls."""
        (vector,) = self._pictures.read(image, 1, one=True)
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

    def _required_tokens(self, must_include: Any, bad: Sequence[int]) -> list[Phrase]:
        phrases = required_phrases("must_include", must_include, self.vocabulary, banned=bad)
        check_states("`must_include`", tuple(phrases))
        return phrases

    def _complete(self, template: Template, fill: Fill, reasons: Reasons | None) -> Completion:
        blanks = template.cut(fill.tokens, fill.lengths)
        text, spans = template.render([self.vocabulary.decode(tokens) for tokens in blanks])
        return replace(
            Completion.of(fill, text, spans),
            words=words_of(template, text, fill, reasons, self.vocabulary) if reasons else (),
            start_score=reasons.backward[0] if reasons else None,
            end_score=reasons.forward[-1] if reasons else None,
        )

    def _reasons(
        self,
        templates: Sequence[Template],
        found: Sequence[Sequence[Fill]],
        conditions: Sequence[Any],
        banned: Sequence[int],
        alternatives: int | None,
    ) -> Iterator[Reasons | None]:
        """What the models say of the words of every fill, one after the other; None each, if nobody asked."""
        if alternatives is None:
            return itertools.repeat(None)
        rows = [(template, fill) for template, fills in zip(templates, found, strict=True) for fill in fills]
        given = [condition for condition, fills in zip(conditions, found, strict=True) for _ in fills]
        reasons = find_reasons(
            self.forward,
            self.backward,
            [fill.tokens for _, fill in rows],
            [template.slots(self.vocabulary, fill.lengths) for template, fill in rows],
            count=alternatives,
            banned=banned,
            conditions=None if all(condition is None for condition in given) else given,
        )
        return iter(reasons)


def _say_if_nothing(results: Sequence[Sequence[Completion] | ValueError]) -> None:
    empty = [place for place, found in enumerate(results) if not isinstance(found, ValueError) and not found]
    if empty:
        warnings.warn(
            f"nothing was found for `templates[{empty[0]}]`"
            + (f" and {len(empty) - 1} others" if empty[1:] else "")
            + ": no fill has a probability above 0 (fewer `bad_words` or `must_include`, or other lengths, may help)",
            stacklevel=3,
        )


def _on_device(model: StepModel, device: torch.device | str | None) -> StepModel:
    """A model that is no module and no n-gram is its owner's business."""
    if device is None or not isinstance(model, (nn.Module, NGramModel)):
        return model
    try:
        torch.zeros(1, device=device).item()
        return model.to(device)
    except (RuntimeError, AssertionError, TypeError, ValueError):  # whatever torch says of it, in several lines
        raise ValueError(f"`device` must be one that torch can use here, but is {device!r}") from None


def _whole_number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"`{name}` must be a whole number of at least 1, but is {value!r}")
    return int(value)


def _path(directory: Any) -> Path:
    if not isinstance(directory, str | os.PathLike):
        raise ValueError(f"`directory` must be a path, but is {directory!r:.60}")
    return Path(directory)
