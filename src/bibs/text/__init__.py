"""From text to token ids and back: the tokeniser, the vocabulary, the template language."""

from bibs.text.template import Template, escape
from bibs.text.tokeniser import tokenize
from bibs.text.vocabulary import Vocabulary

__all__ = ["Template", "Vocabulary", "escape", "tokenize"]
