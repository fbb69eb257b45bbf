"""Gaps in genomes: what is filled, what is left, what is written, what is refused. All genomes here are made up."""

from __future__ import annotations

import csv
import gzip
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bibs.cli import main
from bibs.data import read_fasta
from bibs.dna import (
    DnaSettings,
    FilledGap,
    GapFiller,
    LetterGap,
    count_gaps,
    count_references,
    fill_fasta,
    find_gaps,
    to_letters,
    to_tokens,
)
from bibs.models.kmers import KmerModel

LETTERS = np.array(list("ACGT"))


def random_letters(length: int, seed: int) -> str:
    return "".join(np.random.default_rng(seed).choice(LETTERS, length))


def changed(letters: str, places: list[int]) -> str:
    """Another letter at each of the places."""
    found = list(letters)
    for place in places:
        found[place] = "ACGT"["ACGT".index(found[place]) - 1]
    return "".join(found)


GENOME = random_letters(3_000, seed=1)
OTHER_STRAND = GENOME[::-1].translate(str.maketrans("ACGT", "TGCA"))


def write_fasta(path: Path, records: dict[str, str], newline: str = "\n") -> Path:
    text = "".join(f">{name}{newline}{letters}{newline}" for name, letters in records.items())
    path.write_bytes(text.encode())
    return path


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fasta(tmp_path_factory.mktemp("reference") / "reference.fa", {"relative": GENOME})


@pytest.fixture(scope="module")
def fill(reference: Path) -> GapFiller:
    return GapFiller(*count_references([reference]))


def cut(letters: str, *spans: tuple[int, int], letter: str = "N") -> str:
    for start, end in spans:
        letters = letters[:start] + letter * (end - start) + letters[end:]
    return letters


def filled(fill: GapFiller, letters: str) -> list[FilledGap]:
    return fill(list(find_gaps("r", letters, 100)))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


# --- what is filled


@pytest.mark.parametrize("length", [1, 25])
@pytest.mark.parametrize("strand", [GENOME, OTHER_STRAND], ids=["same strand", "other strand"])
def test_what_the_relative_has_comes_back_on_either_strand(fill, strand, length):
    (result,) = filled(fill, cut(strand, (1_000, 1_000 + length)))
    assert result.letters == strand[1_000 : 1_000 + length]
    assert result.support == (19, 19)
    assert result.identity > 0.95
    assert result.right <= result.identity
    assert result.margin > 0


def test_letters_that_differ_next_to_a_gap_do_not_stop_it(fill):
    genome = changed(GENOME, [1_496, 1_522, 1_528])
    (result,) = filled(fill, cut(genome, (1_500, 1_520)))
    assert result.letters == GENOME[1_500:1_520]


def test_many_gaps_at_once_equal_one_at_a_time_in_their_order(fill):
    letters = cut(GENOME, (300, 320), (700, 703), (1_100, 1_125), (2_000, 2_001))
    together = filled(fill, letters)
    assert [result.gap.start for result in together] == [300, 700, 1_100, 2_000]
    for gap, result in zip(find_gaps("r", letters, 100), together, strict=True):
        (alone,) = fill([gap])
        assert alone.letters == result.letters
        assert alone.score == pytest.approx(result.score, abs=1e-6)


def test_a_gap_at_the_end_of_a_contig_is_filled_by_the_side_there_is(fill):
    for letters, span in ((GENOME[:500], (480, 500)), (GENOME[500:], (0, 20))):
        (result,) = filled(fill, cut(letters, span))
        assert result.letters == letters[slice(*span)]
        assert sorted(result.support) == [0, 19]


def test_an_unknown_length_is_found_within_its_range(reference):
    fill = GapFiller(*count_references([reference]), DnaSettings(length_range=(0.5, 1.5)))
    short = GENOME[:1_000] + "N" * 40 + GENOME[1_050:]  # what is missing has 50 letters
    (result,) = filled(fill, short)
    assert result.letters == GENOME[1_000:1_050]


def test_the_claims_are_the_models_own_probabilities(fill):
    """Judged letter by letter: both models read everything on their side of a place from scratch."""
    genome = changed(GENOME, [1_003, 990])
    (result,) = filled(fill, cut(genome, (1_000, 1_006)))
    left, tokens, right = (to_tokens(x).tolist() for x in (genome[941:1_000], result.letters, genome[1_006:1_065]))
    score, right_share, shares = 0.0, 1.0, []
    for place, token in enumerate(tokens):
        f = fill.forward.start([[*left, *tokens[:place]]])[0][0]
        g = fill.backward.start([[*right[::-1], *tokens[:place:-1]]])[0][0]
        score += float(f[token] + g[token])
        both = ((f + g) / 2).exp()[1:]
        shares.append(float(both[token - 1] / both.sum()))
        right_share *= shares[-1]
    assert result.score == pytest.approx(score, abs=0.05)  # the search reads a little more of the sides
    assert result.right == pytest.approx(right_share, rel=0.02)
    assert result.identity == pytest.approx(sum(shares) / len(shares), rel=0.02)


@pytest.mark.slow
def test_gaps_of_a_real_genome_are_mostly_filled_right():
    data = Path(os.environ.get("BIBS_DATA", "no data")) / "dna"
    if not data.is_dir():
        pytest.skip(f"real genomes are tested where BIBS_DATA has them, and {data} does not exist")
    starts = {path.name: next(iter(read_fasta(path))).letters[:200_000] for path in data.glob("*.fa.gz")}
    genome = starts.pop("G27.fa.gz")
    fill = GapFiller(*KmerModel.count_pair([to_tokens(letters) for letters in starts.values()]))
    spans = [(at, at + 20) for at in range(20_000, 150_000, 6_500)]
    results = filled(fill, cut(genome, *spans))
    right = [
        a == b
        for r, span in zip(results, spans, strict=True)
        for a, b in zip(r.letters, genome[slice(*span)], strict=False)
    ]
    assert len(right) > 0.8 * 20 * len(spans)  # few are left
    assert sum(right) > 0.85 * len(right)


# --- what is left


def test_a_gap_without_support_on_either_side_is_left_and_the_reason_said(fill):
    (result,) = filled(fill, random_letters(200, seed=9) + "N" * 30 + random_letters(200, seed=10))
    assert (result.letters, result.reason) == ("", "neither side of it stands in the references")


def test_a_gap_longer_than_the_limit_is_left(reference):
    fill = GapFiller(*count_references([reference]), DnaSettings(max_length=20))
    long, short = filled(fill, cut(GENOME, (500, 521), (1_500, 1_520)))
    assert (long.letters, long.reason) == ("", "longer than 20 letters")
    assert short.letters == GENOME[1_500:1_520]


def test_a_fill_that_claims_too_little_is_left(reference):
    pair = count_references([reference])
    strange = GENOME[:500] + "N" * 20 + GENOME[2_000:]  # the two sides do not belong together
    (result,) = filled(GapFiller(*pair, DnaSettings(min_identity=0.999)), strange)
    assert not result.letters
    assert result.reason.startswith("of the best fill only ")
    (anyway,) = filled(GapFiller(*pair, DnaSettings(min_identity=0.0)), strange)
    assert len(anyway.letters) == 20


def test_a_record_of_nothing_but_n_is_left(fill):
    (result,) = filled(fill, "N" * 20)
    assert (result.letters, result.support) == ("", (0, 0))


# --- what is written


def test_known_letters_stay_and_filled_ones_are_lower_case(fill, tmp_path):
    letters = cut(GENOME, (500, 520), (1_000, 1_030))
    letters = letters[:100].lower() + "R" + letters[101:]
    letters = letters[:1_010] + "n" * 10 + letters[1_020:]
    records = {"one two": letters, "empty": "", "short": "ACGTNNACGT"}
    genome = write_fasta(tmp_path / "genome.fa", records, newline="\r\n")
    summary = fill_fasta(genome, tmp_path / "filled.fa", fill)
    one, empty, short = read_fasta(tmp_path / "filled.fa")
    assert (one.name, one.description, empty.letters, short.letters) == ("one", "two", "", "ACGTNNACGT")
    expected = GENOME[:100] + "R" + GENOME[101:500] + GENOME[500:520].lower() + GENOME[520:1_000]
    assert one.letters == expected + GENOME[1_000:1_030].lower() + GENOME[1_030:]
    assert (summary.records, summary.gaps, summary.filled, summary.letters_filled) == (3, 3, 2, 50)
    assert summary.lower_case == 100


def test_the_tables_say_where_each_gap_was_and_is(reference, tmp_path):
    fill = GapFiller(*count_references([reference]), DnaSettings(length_range=(0.5, 1.5)))
    letters = GENOME[:400] + "N" * 10 + GENOME[412:1_000] + "N" * 30 + GENOME[1_030:]
    genome = write_fasta(tmp_path / "genome.fa", {"a": letters, "b": "N" * 5})
    fill_fasta(genome, tmp_path / "out.fa", fill)
    (whole, _) = read_fasta(tmp_path / "out.fa")
    first, second, left = rows_of(tmp_path / "out.tsv")
    assert [(row["start"], row["end"], row["length"]) for row in (first, second)] == [
        ("400", "410", "10"),
        ("998", "1028", "30"),
    ]
    assert int(first["filled_end"]) - int(first["filled_start"]) == 12
    for row in (first, second):
        start, end = int(row["filled_start"]), int(row["filled_end"])
        assert row["status"] == "filled"
        assert whole.letters[start:end].islower()
        assert whole.letters[start - 1].isupper()
        assert whole.letters[end].isupper()
        assert 0 < float(row["right"]) <= float(row["identity"]) <= 1
        assert float(row["margin"]) >= 0
    assert (left["record"], left["status"], left["right"]) == ("b", "left", "")
    assert left["reason"] == "neither side of it stands in the references"
    bed = [line.split("\t") for line in (tmp_path / "out.bed").read_text().splitlines()]
    assert [row[:4] for row in bed[:2]] == [
        ["a", row["filled_start"], row["filled_end"], "filled"] for row in (first, second)
    ]
    assert bed[2] == ["b", "0", "5", "left", "0", "."]


def test_a_packed_genome_is_read_and_written_packed(fill, tmp_path):
    genome = tmp_path / "genome.fa.gz"
    genome.write_bytes(gzip.compress(f">a\n{cut(GENOME, (90, 99))}\n".encode()))
    fill_fasta(genome, tmp_path / "filled.fa.gz", fill)
    (record,) = read_fasta(tmp_path / "filled.fa.gz")
    assert (tmp_path / "filled.fa.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert record.letters.upper() == GENOME
    assert (tmp_path / "filled.tsv").exists()


def test_ten_thousand_gaps_in_many_records_are_all_answered(reference, tmp_path):
    fill = GapFiller(*count_references([reference], order=8), DnaSettings(num_beams=1, num_rounds=0, method="forward"))
    piece = cut(GENOME[:404], *((at, at + 1) for at in range(2, 402, 4)))
    genome = write_fasta(tmp_path / "genome.fa", {f"contig{number}": piece for number in range(100)})
    seen: list[int] = []
    summary = fill_fasta(genome, tmp_path / "filled.fa", fill, seen.append)
    assert count_gaps(genome) == summary.gaps == sum(seen) == 10_000
    assert len(rows_of(tmp_path / "filled.tsv")) == 10_000
    assert sum(len(record.letters) for record in read_fasta(tmp_path / "filled.fa")) == 100 * 404


def test_nothing_half_written_is_left_behind(tmp_path, fill):
    genome = write_fasta(tmp_path / "genome.fa", {"a": cut(GENOME, (50, 60)), "b": cut(GENOME, (50, 60))})

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill_fasta(genome, tmp_path / "filled.fa", fill, stop)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["genome.fa"]


# --- what is refused


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"length_range": (1.2, 1.5)}, "`length_range` must be two numbers as 0.8,1.2 around 1, but is 1.2,1.5"),
        ({"length_range": (0.0, 1.5)}, "`length_range` must be"),
        ({"length_range": (0.5, math.inf)}, "`length_range` must be"),
        ({"max_length": 0}, "`max_length` must be at least 1, but is 0"),
        ({"min_support": -1}, "`min_support` must be at least 0, but is -1"),
        ({"min_identity": 1.5}, "`min_identity` must be between 0 and 1, but is 1.5"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings, says):
    with pytest.raises(ValueError, match=says):
        DnaSettings(**settings)


def test_letters_and_tokens_are_two_names_for_the_same():
    assert to_tokens("AcGtNRu").tolist() == [1, 2, 3, 4, 0, 0, 0]
    assert to_letters([1, 2, 3, 4, 0]) == "ACGTN"
    assert list(find_gaps("r", "NACnNGT", 2)) == [LetterGap("r", 0, 1, "", "AC"), LetterGap("r", 3, 5, "AC", "GT")]


@pytest.fixture
def bibs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    """`bibs fill` with arguments: its exit code, and the lines that it says."""

    def run(*arguments: object) -> tuple[int, list[str]]:
        monkeypatch.setattr(sys, "argv", ["bibs", "fill", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert out == ""
        return int(ended.value.code or 0), err.splitlines()

    return run


def test_the_command_fills_a_genome_and_says_what_it_did(bibs, reference, tmp_path):
    genome = write_fasta(tmp_path / "genome.fa", {"a": cut(GENOME, (500, 540)), "b": "ACGTNACGT"})
    more = write_fasta(tmp_path / "more.fa", {"c": random_letters(300, seed=4)})
    output = tmp_path / "filled.fa"
    code, said = bibs("--fasta", genome, "--reference", reference, more, "--output", output)
    assert (code, said) == (0, [f"{output}: 1 of 2 gaps filled (40 letters); 1 left as N, the table says why"])
    assert next(iter(read_fasta(output))).letters == GENOME[:500] + GENOME[500:540].lower() + GENOME[540:]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--reference", "R"], "`--reference` needs `--fasta`"),
        (["--fasta", "G", "--output", "O"], "`--fasta` needs `--reference`, a genome to learn from, but none is given"),
        (["--fasta", "G", "--reference", "R"], "`--fasta` needs `--output`, a file to write, but none is given"),
        (["--fasta", "G", "--reference", "R", "-o", "G"], "`--output` must not write over G, from which it is made"),
        (["--fasta", "G", "--reference", "R", "-o", "O", "--image", "x"], "`--image` has no meaning with `--fasta`"),
        (["--fasta", "G", "--reference", "R", "-o", "O", "--length-range", "2"], "`--length-range` must be two"),
        (["--fasta", "G", "--reference", "P", "-o", "O"], "P, record 'p': a letter must be A, C, G, T, N or another"),
        (["--fasta", "P", "--reference", "R", "-o", "O"], "P, record 'p': a letter must be A, C, G, T, N or another"),
        (["--fasta", "G", "--reference", "none.fa", "-o", "O"], "no such file: none.fa"),
        (["--fasta", "G", "--reference", "R", "-o", "O", "--order", "40"], "`--order` must be between 2 and 27"),
        (["--fasta", "G", "--reference", "R", "-o", "no/O"], "`--output` cannot be written: no/O.part: No such file"),
        (["--fasta", "G", "--reference", "N", "-o", "O"], "`--reference` must hold at least one base, but N hold none"),
        (["--fasta", "G", "--reference", "R", "-o", "O", "--method", "x"], "`--method` must be one of bibs, forward"),
    ],
)
def test_bad_input_is_one_line_at_the_command_line(bibs, arguments, says, tmp_path, monkeypatch, reference):
    monkeypatch.chdir(tmp_path)
    Path("R").write_bytes(reference.read_bytes())
    write_fasta(Path("G"), {"a": cut(GENOME, (500, 510))})
    write_fasta(Path("P"), {"p": "MEEPQSDPSV"})
    write_fasta(Path("N"), {"n": "NNNN"})
    code, said = bibs(*arguments)
    assert (code, len(said)) == (2, 1)
    assert said[0].startswith(f"bibs: {says}")
    assert not Path("O").exists()


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("relative.fa", "`--output` must not write over relative.fa, from which it is made"),
        ("genome.fa.gz", "`--output` must not write over genome.tsv, from which it is made"),
        ("filled.bed", "`--output` must be the FASTA file, but filled.bed is the name of a table"),
        ("filled.tsv", "`--output` must be the FASTA file, but filled.tsv is the name of a table"),
    ],
)
def test_what_is_read_is_never_written_over(bibs, output, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    letters = {"genome.fa": ">a\nACGTNNACGT\n", "relative.fa": ">b\nACGTGGACGT\n", "genome.tsv": ">c\nACGT\n"}
    for name, text in letters.items():
        (tmp_path / name).write_text(text)
    arguments = ("--fasta", "genome.fa", "--reference", "relative.fa", "--reference", "genome.tsv", "--output", output)
    code, errors = bibs(*arguments)
    assert (code, [line.startswith(f"bibs: {says}") for line in errors]) == (2, [True])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == letters


def test_torch_is_left_with_the_mode_it_had(fill):
    filled(fill, cut(GENOME, (100, 104)))
    assert not torch.is_inference_mode_enabled()
