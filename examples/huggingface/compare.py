"""Compare a GPT-2 pair under BiBS with models that were trained for blanks, on the same blanked captions.

    python examples/huggingface/train_pair.py --data dataset_coco.json --output models --kinds forward,backward,fim,mlm
    python examples/huggingface/compare.py --models models --data dataset_coco.json --output runs/comparison

prints the tables of docs/comparison.md. A run that was stopped goes on where it was. What was not trained is left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fillers import MaskFiller, MiddleWriter, PairSearch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.utils import logging

from bibs import Infiller
from bibs.evaluation import METHODS, CaptionSettings, evaluate_captions
from bibs.evaluation.methods import Search
from bibs.models.directory import load_length_prior

METRICS = {
    "CIDEr": "CIDEr",
    "Bleu_4": "Bleu-4",
    "METEOR": "METEOR",
    "blank_CIDEr": "blank CIDEr",
    "exact_match": "exact match",
    "token_accuracy": "token accuracy",
}
KNOWN_ONLY = ("mlm-greedy", "mlm-confidence", "mlm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, help="the directory that train_pair.py wrote")
    parser.add_argument("--data", type=Path, required=True, help="captions with a split to measure on (docs/data.md)")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, default=None, help="so many captions at most")
    parser.add_argument("--removed", type=int, default=50, help="per cent of the words")
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--lengths", default="known,unknown")
    parser.add_argument("--workers", type=int, default=1)
    told = parser.parse_args()
    logging.disable_progress_bar()
    methods = enter_methods(told.models)
    print(describe_models(told.models))
    for lengths in told.lengths.split(","):
        settings = CaptionSettings(
            split=told.split,
            lengths=(lengths,),
            methods=",".join(name for name in methods if lengths == "known" or name not in KNOWN_ONLY),
            limit=told.limit,
            num_beams=told.beams,
            removed=(told.removed,),
        )
        found = evaluate_captions(
            Infiller.from_pretrained(), told.data, settings=settings, output=told.output / lengths, workers=told.workers
        )
        print(f"\n### {lengths.capitalize()} length, r = {told.removed} %\n")
        print(table(found.results.rows, found.results.labels))
        print("\nBiBS on the GPT-2 pair minus the others, CIDEr, 95 % interval of the paired difference:\n")
        print(differences(found.results.comparisons, found.results.labels), flush=True)


def enter_methods(models: Path) -> list[str]:
    """Enter what can be compared in the methods of the evaluation, under names of their own; "bibs" is the pair's."""
    how: dict[str, Any] = {"extra_tokens": 1, "length_prior": load_length_prior(models)}
    infiller = Infiller.from_huggingface(models / "forward", models / "backward", models / "tokenizer", **how)
    entries: dict[str, tuple[str, Any]] = {
        "forward": ("GPT-2 pair, forward only", PairSearch(infiller, "forward")),
        "backward": ("GPT-2 pair, backward only", PairSearch(infiller, "backward")),
        "rerank-sum": ("GPT-2 pair, BiRNN-f+b", PairSearch(infiller, "rerank-sum")),
        "bibs": ("GPT-2 pair, BiBS", PairSearch(infiller, "bibs")),
    }
    if (models / "fim" / "config.json").exists():
        network = AutoModelForCausalLM.from_pretrained(models / "fim").eval()
        entries["fim"] = "FIM GPT-2, beams", MiddleWriter(network, infiller.tokenizer)
        entries["fim-samples"] = "FIM GPT-2, samples", MiddleWriter(network, infiller.tokenizer, samples=True)
    if (models / "mlm" / "config.json").exists():
        network = AutoModelForMaskedLM.from_pretrained(models / "mlm").eval()
        entries["mlm-greedy"] = "BERT, left to right", MaskFiller(network, infiller.tokenizer, "greedy")
        entries["mlm-confidence"] = "BERT, surest first", MaskFiller(network, infiller.tokenizer, "confidence")
        entries["mlm"] = "BERT, beams", MaskFiller(network, infiller.tokenizer, "left to right")
    entries["lstm-forward"] = "Bundled LSTM pair, forward only", Search("forward")
    entries["lstm"] = "Bundled LSTM pair, BiBS", Search("bibs")
    METHODS.update(entries)
    return list(entries)


def describe_models(models: Path) -> str:
    """What train_pair.py wrote down of each network."""
    told = {path.parent.name: json.loads(path.read_text()) for path in sorted(models.glob("*/training.json"))}
    names = ("parameters", "steps", "processor_seconds", "val_loss_per_sentence")
    lines = [f"| {kind} | " + " | ".join(f"{each[name]:,}" for name in names) + " |" for kind, each in told.items()]
    head = ["| model | parameters | steps | processor seconds | val nats a sentence |", "|---|---|---|---|---|"]
    return "\n".join([*head, *lines])


def table(rows: Sequence[dict[str, Any]], labels: dict[str, str]) -> str:
    """One line a method: metrics with half of their 95 % intervals, and captions per second of one core."""
    lines = ["| method | " + " | ".join(METRICS.values()) + " | captions/s |", "|---" * (len(METRICS) + 2) + "|"]
    for row in rows:
        cells = [_cell(row[name], row[f"{name}_ci"]) for name in METRICS]
        lines.append(f"| {labels[row['method']]} | " + " | ".join(cells) + f" | {row['n'] / row['seconds']:.1f} |")
    return "\n".join(lines)


def _cell(value: float | None, interval: Sequence[float] | None) -> str:
    return "" if value is None or interval is None else f"{value:.3f} ± {(interval[1] - interval[0]) / 2:.3f}"


def differences(comparisons: Sequence[dict[str, Any]], labels: dict[str, str]) -> str:
    lines = ["| other | difference | from | to |", "|---|---|---|---|"]
    for each in comparisons:
        if each["metric"] == "CIDEr":
            low, high = each["difference_ci"]
            lines.append(f"| {labels[each['other']]} | {each['difference']:+.3f} | {low:+.3f} | {high:+.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
