"""From text to token ids and back: the tokeniser, the vocabulary, the template language."""

from bibs.text.phrases import Phrase, banned_words, required_phrases
from bibs.text.subwords import SubwordTemplate, SubwordTokenizer
from bibs.text.template import Template, escape
from bibs.text.tokeniser import tokenize, words_as_typed
from bibs.text.vocabulary import SPECIALS, Vocabulary

__all__ = [
    "SPECIALS",
    "Phrase",
    "SubwordTemplate",
    "SubwordTokenizer",
    "Template",
    "Vocabulary",
    "banned_words",
    "escape",
    "required_phrases",
    "tokenize",
    "words_as_typed",
]
