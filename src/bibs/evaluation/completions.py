"""A filled blank as it is kept on disk, and the work that makes one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bibs.evaluation.methods import Filler, Method
from bibs.evaluation.runs import Cell
from bibs.evaluation.tasks import Example, ImageId


@dataclass(frozen=True)
class Completion:
    cell: str
    method: str
    key: ImageId
    image_id: ImageId
    before: str
    fill: str
    after: str
    truth: str
    score: float
    forward_score: float
    backward_score: float
    rounds: int
    seconds: float  # this one's share of the processor time of its slice: other work on the machine does not count


@dataclass(frozen=True)
class Completing:
    """Work that fills a slice and notes how much processor time that took."""

    filler: Filler

    def __call__(self, cell: Cell, method: Method, examples: Sequence[Example]) -> list[Completion]:
        began = time.process_time()
        answers = self.filler(method, examples, cell.lengths)
        seconds = (time.process_time() - began) / len(examples)
        return [
            Completion(
                cell=cell.name,
                method=method.key,
                key=example.key,
                image_id=example.image_id,
                before=" ".join(example.before),
                fill=" ".join(answer.words),
                after=" ".join(example.after),
                truth=" ".join(example.blank),
                score=answer.score,
                forward_score=answer.forward_score,
                backward_score=answer.backward_score,
                rounds=answer.rounds,
                seconds=seconds,
            )
            for example, answer in zip(examples, answers, strict=True)
        ]
