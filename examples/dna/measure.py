"""Gaps cut out of one genome and filled from its relatives: how much of them is right, and what it costs.

    python examples/dna/measure.py --genome G27 --output results.json

Every genome of the folder but `--genome` is a reference. Settings were chosen without a look at G27:

    python examples/dna/measure.py --choose --genome SJM180 --without G27
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from anchors import COMPLEMENT, Anchors

from bibs.data import read_fasta
from bibs.dna import DnaSettings, GapFiller, LetterGap, count_references, to_tokens
from bibs.dna.filler import FLANK

METHODS = ("forward", "backward", "rerank-sum", "bibs")
CLAIMS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
EVERYTHING = DnaSettings(min_support=0, min_identity=0.0)  # what is measured is never left out


def cut_gaps(genome: str, length: int, count: int, seed: int) -> tuple[list[LetterGap], list[str]]:
    """Gaps at random places, every other one on the other strand, and the letters that stood there."""
    places = np.random.default_rng([seed, length]).integers(FLANK, len(genome) - length - FLANK, 2 * count)
    gaps, truths = [], []
    for start in places.tolist():
        around = genome[start - FLANK : start + length + FLANK]
        if "N" in around:
            continue
        if len(gaps) % 2:
            around = around[::-1].translate(COMPLEMENT)
        gaps.append(LetterGap("cut", start, start + length, around[:FLANK], around[-FLANK:]))
        truths.append(around[FLANK:-FLANK])
    return gaps[:count], truths[:count]


def share_right(fill: str | None, truth: str) -> float:
    """Place by place. What could not be filled counts as drawn at random, a quarter right."""
    if fill is None:
        return 0.25
    return sum(a == b for a, b in zip(fill, truth, strict=False)) / len(truth)


def interval(values: Sequence[float], others: Sequence[float] | None = None) -> list[float]:
    """The 95 % bootstrap interval of a mean, or of the mean difference of the same gaps."""
    kept = np.asarray(values) - (0 if others is None else np.asarray(others))
    means = np.random.default_rng(0).choice(kept, (2_000, len(kept))).mean(1)
    return [round(float(x), 4) for x in np.quantile(means, [0.025, 0.975])]


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of the line through (log size, log seconds)."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    before = time.process_time()
    return run(), time.process_time() - before


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    genome, references = genomes(arguments)
    pair, seconds = timed(lambda: count_references(references, both_strands=not arguments.one_strand))
    anchors = Anchors([record.letters for path in references for record in read_fasta(path)])
    rows, claims = [], []
    for length in arguments.lengths:
        gaps, truths = cut_gaps(
            genome, length, max(20, min(arguments.gaps, arguments.letters // length)), arguments.seed
        )
        found: dict[str, list[str | None]] = {}
        costs = {}
        for method in arguments.methods:
            fill = GapFiller(*pair, replace(EVERYTHING, method=method, num_beams=arguments.num_beams))
            results, costs[method] = timed(lambda fill=fill, gaps=gaps: fill(gaps))
            found[method] = [result.letters for result in results]
            if method == "bibs":
                claims += [
                    (result.right, result.identity, result.letters == truth, share_right(result.letters, truth))
                    for result, truth in zip(results, truths, strict=True)
                ]
        found["anchors"], costs["anchors"] = timed(lambda gaps=gaps: [anchors(gap) for gap in gaps])
        shares = {
            name: [share_right(*each) for each in zip(fills, truths, strict=True)] for name, fills in found.items()
        }
        for name, fills in found.items():
            row = {"length": length, "method": name, "gaps": len(gaps), "identity": float(np.mean(shares[name]))}
            row |= {"identity_ci": interval(shares[name]), "exact": float(np.mean(np.equal(shares[name], 1)))}
            row |= {"bibs_above": interval(shares["bibs"], shares[name])} if "bibs" in shares else {}
            row |= {"filled": sum(fill is not None for fill in fills) / len(fills)}
            rows.append(row | {"seconds": costs[name] / len(gaps)})
            print(describe(rows[-1]), flush=True)
    slopes = {
        name: round(exponent(arguments.lengths, [row["seconds"] for row in rows if row["method"] == name]), 2)
        for name in (arguments.methods if len(arguments.lengths) > 1 else ())
    }
    return {"counted_in": seconds, "rows": rows, "exponents": slopes, "calibration": calibration(claims)}


def describe(row: dict[str, Any]) -> str:
    low, high = row["identity_ci"]
    text = f"{row['length']:>4}  {row['method']:<10}  identity {row['identity']:.4f} [{low:.4f}, {high:.4f}]"
    above = "" if "bibs_above" not in row or row["method"] == "bibs" else "  bibs above by [{:+.4f}, {:+.4f}]"
    text += f"  exact {row['exact']:.3f}  filled {row['filled']:.2f}  {1000 * row['seconds']:.1f} ms a gap"
    return text + above.format(*row.get("bibs_above", ()))


def calibration(claims: Sequence[tuple[float, float, bool, float]]) -> list[dict[str, float]]:
    """Fills by what they claim: of those that claim to be right with some probability, how many are."""
    bins = []
    for low, high in pairwise(CLAIMS):
        inside = [each for each in claims if low <= each[0] < high or (high == 1 and each[0] == 1)]
        if inside:
            claimed, should, right, share = (float(np.mean(column)) for column in zip(*inside, strict=True))
            margin = 1.96 * math.sqrt(max(right * (1 - right), 0.25 / len(inside)) / len(inside))
            bins.append({"low": low, "high": high, "fills": len(inside), "claimed": claimed, "right": right})
            bins[-1] |= {"margin": margin, "identity_claimed": should, "identity": share}
    return bins


def choose(arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Bits a letter of the genome, under models of its relatives: every setting, one strand or both."""
    genome, references = genomes(arguments)
    pieces = [to_tokens(genome[at : at + 400]).tolist() for at in range(0, len(genome) - 400, len(genome) // 300)]
    rows = []
    for both in (False, True):
        for order in (8, 12, 16, 20, 24):
            with torch.inference_mode():
                forward, backward = count_references(references, order=order, both_strands=both)
                scores = [
                    model.start(some)[2] - model.start([piece[:60] for piece in some])[2]
                    for model, some in ((forward, pieces), (backward, [piece[::-1] for piece in pieces]))
                ]
            bits = [float(-score.mean() / math.log(2) / 340) for score in scores]
            rows.append({"both_strands": both, "order": order, "forward": bits[0], "backward": bits[1]})
            print({name: round(value, 4) for name, value in rows[-1].items()}, flush=True)
    return rows


def genomes(arguments: argparse.Namespace) -> tuple[str, list[Path]]:
    paths = {path.name.partition(".")[0]: path for path in sorted(Path(arguments.data).glob("*.fa.gz"))}
    if arguments.genome not in paths:
        raise SystemExit(f"`--genome` must be one of {', '.join(paths)} in {arguments.data}, but is {arguments.genome}")
    (record,) = read_fasta(paths[arguments.genome])
    return record.letters, [path for name, path in paths.items() if name not in (arguments.genome, *arguments.without)]


def add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", default=Path(os.environ.get("BIBS_DATA", "../shared/data")) / "dna")
    parser.add_argument("--genome", default="G27", help="the genome that has gaps")
    parser.add_argument("--without", nargs="*", default=[], help="genomes that are no reference either")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data(parser)
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 20, 50, 100, 200, 500])
    parser.add_argument("--gaps", type=int, default=1_000, help="of each length, ...")
    parser.add_argument("--letters", type=int, default=40_000, help="... but no more letters than this")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--num-beams", type=int, default=5)
    parser.add_argument("--one-strand", action="store_true", help="learn nothing from the reverse complement")
    parser.add_argument("--choose", action="store_true", help="compare orders and strands instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    found = choose(arguments) if arguments.choose else measure(arguments)
    if isinstance(found, dict):
        print(
            f"counted in {found['counted_in']:.1f} processor seconds; exponents of time by length {found['exponents']}"
        )
        for each in found["calibration"]:
            print({name: round(value, 3) for name, value in each.items()})
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
