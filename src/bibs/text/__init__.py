"""From text to token ids and back: the tokeniser, the vocabulary, the template language."""

from bibs.text.template import Template, escape
from bibs.text.tokeniser import tokenize, words_as_typed
from bibs.text.vocabulary import Vocabulary

__all__ = ["Template", "Vocabulary", "escape", "tokenize", "words_as_typed"]
