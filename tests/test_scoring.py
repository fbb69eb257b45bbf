"""Scoring given tokens: a model that does it itself agrees with one that is stepped, and stops where it may."""

from __future__ import annotations

import pytest
import torch

from bibs import fill_templates
from bibs.models.decoding import Decoder
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from fakes import CountingModel, FrugalHistoryModel

TEMPLATES = [[0, 2, None, None, None, 3, 1], [0, None, 1], [0, None, 2, None, 3, 3, 1], [0, 3, 2, 1]]


@pytest.mark.filterwarnings("ignore:`num_return_sequences`")
@pytest.mark.parametrize("cutoffs", [(), (6, 14)])
def test_in_float32_the_two_ways_agree_within_1e_4(cutoffs: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    config = RecurrentConfig(30, 16, 16, cutoffs=cutoffs)
    pair = [RecurrentModel(config).eval() for _ in range(2)]
    scored = fill_templates(*pair, TEMPLATES, num_return_sequences=9)
    stepped = fill_templates(*map(CountingModel, pair), TEMPLATES, num_return_sequences=9)
    for ours, theirs in zip(scored, stepped, strict=True):
        assert [fill.tokens for fill in ours] == [fill.tokens for fill in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert (a.forward_score, a.backward_score) == pytest.approx((b.forward_score, b.backward_score), abs=1e-4)


@pytest.mark.parametrize("method", ["bibs", "exact"])
def test_fills_that_cannot_win_are_given_up(method: str) -> None:
    models = FrugalHistoryModel(5, 1), FrugalHistoryModel(5, 2)
    fill_templates(*models, TEMPLATES, method=method)
    assert models[1].given_up > (20 if method == "exact" else 0)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_recurrent_model_stops_reading_below_the_floor(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = RecurrentModel(RecurrentConfig(30, 16, 16, cell=cell)).eval()
    _, state, _ = model.start([[0, 3], [0, 4], [0, 5], [0, 6]])
    continuations = [[7, 8, 9, 10, 11], [7, 8], [9, 8, 7, 6, 5], [3]]
    exact = model.score(continuations, state)
    read: list[int] = []
    advance = Decoder._advance
    monkeypatch.setattr(
        Decoder, "_advance", lambda self, gates, old: read.append(len(gates)) or advance(self, gates, old)
    )
    floors = torch.stack([exact[0] - 0.1, exact[1] - 0.1, exact[2] / 2, torch.tensor(0.0)])
    found = model.score(continuations, state, floors)
    torch.testing.assert_close(found[[0, 1, 3]], exact[[0, 1, 3]])
    assert exact[2] < found[2] < floors[2]
    assert read[0] == 3  # the last has nothing to be read
    assert sum(read) < 4 + 1 + 4
