"""Readers: what a file says comes out unchanged, and every bad file gives one clear line."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bibs.data import (
    MADLIBS_TYPES,
    CaptionedImage,
    Features,
    count_lines,
    image_id_of,
    is_json_lines,
    madlibs_type,
    read_captions,
    read_fasta,
    read_madlibs,
    read_rows,
)
from bibs.data.files import open_bytes

ONE_LINE = re.compile(r"[^\n]+")
unhurried = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def real() -> Path:
    folder = os.environ.get("BIBS_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("BIBS_DATA does not name the folder of real data")
    return Path(folder)


def write(path: Path, content: Any) -> Path:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def one_line(read: Any, path: Path, **options: Any) -> str:
    """The error of reading a bad file, which must be a single line that names the file."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        list(read(path, **options))
    message = str(caught.value)
    assert ONE_LINE.fullmatch(message)
    assert str(path) in message
    return message


def karpathy(**changes: Any) -> dict[str, Any]:
    image = {
        "filename": "COCO_val2014_000000000042.jpg",
        "cocoid": 42,
        "split": "restval",
        "sentences": [
            {"tokens": ["two", "dogs"], "raw": "Two dogs."},
            {"tokens": ["a", "dog's", "bone"], "raw": "A dog's bone!"},
        ],
    }
    image.update(changes)
    return {"images": [image], "dataset": "coco"}


# The four layouts of captions


def test_karpathy_coco_gives_the_coco_id_and_restval_is_train(tmp_path: Path) -> None:
    path = write(tmp_path / "dataset_coco.json", karpathy())
    assert list(read_captions(path)) == [
        CaptionedImage(
            image_id=42,
            filename="COCO_val2014_000000000042.jpg",
            split="train",
            captions=(("two", "dogs"), ("a", "dog's", "bone")),
        )
    ]


@pytest.mark.parametrize("name", ["1000268201_693b08cb0e.jpg", "1000092795.jpg"])
def test_karpathy_flickr_gives_the_file_name_as_id(tmp_path: Path, name: str) -> None:
    data = karpathy(filename=name, split="test")
    del data["images"][0]["cocoid"]
    (image,) = read_captions(write(tmp_path / "dataset_flickr8k.json", data))
    assert (image.image_id, image.filename, image.split) == (name, name, "test")


def test_karpathy_without_raw_text_falls_back_on_tokens(tmp_path: Path) -> None:
    data = karpathy(sentences=[{"tokens": ["Two", "dogs", "."]}])
    (image,) = read_captions(write(tmp_path / "d.json", data))
    assert image.captions == (("two", "dogs"),)


def coco_json() -> dict[str, Any]:
    return {
        "images": [
            {"id": 7, "file_name": "000000000007.jpg"},
            {"id": 8, "file_name": "000000000008.jpg"},
            {"id": 9, "file_name": "000000000009.jpg"},
        ],
        "annotations": [
            {"id": 1, "image_id": 8, "caption": "A cat."},
            {"id": 2, "image_id": 7, "caption": "A bus"},
            {"id": 3, "image_id": 8, "caption": "The cat sleeps"},
        ],
    }


@pytest.mark.parametrize(
    ("name", "assume", "split"),
    [
        ("captions_train2017.json", None, "train"),
        ("captions_val2014.json", None, "val"),
        ("captions.json", None, "train"),
        ("captions_val2014.json", "test", "test"),
    ],
)
def test_coco_captions_are_gathered_by_picture(tmp_path: Path, name: str, assume: str | None, split: str) -> None:
    images = list(read_captions(write(tmp_path / name, coco_json()), assume_split=assume))
    assert [(image.image_id, image.captions) for image in images] == [
        (7, (("a", "bus"),)),
        (8, (("a", "cat"), ("the", "cat", "sleeps"))),
    ]
    assert {image.split for image in images} == {split}


def test_json_lines_in_both_forms(tmp_path: Path) -> None:
    lines = [
        {"split": "val", "image": "1.jpg", "captions": ["One dog.", "A dog"]},
        {"image": "train2017/000000000042.jpg", "caption": "A cow"},
        {"caption": "No picture here"},
        {"image_id": "x-9", "caption": "Its own id"},
    ]
    text = "\n\n".join(json.dumps(line) for line in lines)
    images = list(read_captions(write(tmp_path / "captions.jsonl", text)))
    assert [(image.image_id, image.split, len(image.captions)) for image in images] == [
        ("1.jpg", "val", 2),
        (42, "train", 1),
        ("", "train", 1),
        ("x-9", "train", 1),
    ]
    # The same entries as one JSON list are the same pictures.
    assert list(read_captions(write(tmp_path / "captions.json", lines))) == images


def test_plain_text_is_one_caption_a_line_without_pictures(tmp_path: Path) -> None:
    path = write(tmp_path / "captions.txt", "\ufeffA dog.\r\n\r\n...\nTwo cats\n")
    assert list(read_captions(path)) == [
        CaptionedImage(image_id="", filename="", split="train", captions=((words),))
        for words in (("a", "dog"), ("two", "cats"))
    ]


@pytest.mark.parametrize("name", ["dataset.json", "captions_val2014.json", "lines.jsonl", "lines.txt"])
def test_gzip_reads_as_the_plain_file(tmp_path: Path, name: str) -> None:
    content = {
        "dataset.json": json.dumps(karpathy()),
        "captions_val2014.json": json.dumps(coco_json()),
        "lines.jsonl": '{"caption": "a dog"}',
        "lines.txt": "a dog",
    }[name]
    plain = write(tmp_path / name, content)
    packed = write(tmp_path / f"{name}.gz", gzip.compress(content.encode(), mtime=0))
    assert list(read_captions(packed)) == list(read_captions(plain))


def test_a_caption_without_words_is_left_out(tmp_path: Path) -> None:
    data = karpathy(sentences=[{"raw": "..."}, {"raw": "A dog"}])
    (image,) = read_captions(write(tmp_path / "d.json", data))
    assert image.captions == (("a", "dog"),)


def test_split_keeps_that_split_alone(tmp_path: Path) -> None:
    text = "".join(json.dumps({"split": s, "caption": s}) + "\n" for s in ("train", "val", "train", "test"))
    path = write(tmp_path / "c.jsonl", text)
    assert [image.captions for image in read_captions(path, split="train")] == [(("train",),)] * 2


@unhurried
@given(st.integers(min_value=0, max_value=10**12 - 1), st.sampled_from(["", "COCO_val2014_", "COCO_test2015_"]))
def test_a_coco_file_name_gives_its_number(number: int, prefix: str) -> None:
    assert image_id_of(f"some/folder/{prefix}{number:012d}.jpg") == number


@unhurried
@given(st.from_regex(r"[A-Za-z0-9_]{1,20}\.(jpg|png)", fullmatch=True))
def test_any_other_file_name_is_its_own_id(name: str) -> None:
    if not re.fullmatch(r"(COCO_[a-z]+\d{4}_)?\d{12}\.\w+", name):
        assert image_id_of(f"a/b/{name}") == name


# Bad caption files


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("d.json", "", "is empty"),
        ("d.txt", "\n  \n", "is empty"),
        ("d.jsonl", "", "is empty"),
        ("d.json", '{"images": [', "is not JSON: "),
        ("d.json", '{"a": 1}', "no known layout"),
        ("d.json", "[]", "no known layout"),
        ("d.json", {"images": []}, "`images` is empty"),
        ("d.json", b"\xff\xfe{}", "is not UTF-8"),
        ("d.txt", b"a dog\nun caf\xe9\n", "is not UTF-8"),
        ("d.txt", b"\x1f\x8b\x08garbage", "damaged gzip"),
        ("d.json.gz", gzip.compress(b'{"images": []}', mtime=0)[:-9], "damaged gzip"),
        ("d.txt.gz", gzip.compress(b"a dog\n", mtime=0)[:10] + b"\xff" * 20, "damaged gzip"),
        ("d.jsonl", '{"caption": "a"}\n{"caption": 3}', "line 2: `caption` must be a string, but is 3"),
        ("d.jsonl", '{"caption": "a"}\n{oops}', "line 2 is not JSON"),
        ("d.jsonl", '{"image": "a.jpg"}', "line 1 has no field `captions` (a list) or `caption`"),
        ("d.jsonl", '{"captions": ["a", 1]}', "`captions` must be a list of strings"),
        ("d.jsonl", "[1]", "line 1 must be an object, but is [1]"),
        ("d.jsonl", '{"caption": "a", "split": "dev2"}', "`split` must be one of train, restval, val"),
        ("d.json", karpathy(split=None), "images[0]: `split` must be a string, but is null"),
        ("d.json", karpathy(cocoid="42"), 'images[0]: `cocoid` must be an integer, but is "42"'),
        ("d.json", karpathy(cocoid=True), "images[0]: `cocoid` must be an integer, but is true"),
        ("d.json", karpathy(sentences=[{"raw": "a"}, {}]), "images[0].sentences[1] has no field `raw`"),
        ("c.json", {"images": [{"id": 1}], "annotations": [{}]}, "images[0] has no field `file_name`"),
        (
            "c.json",
            {"images": [{"id": 1, "file_name": "a"}], "annotations": [{"image_id": 2, "caption": "a"}]},
            "annotations[0]: `image_id` must be among `images`, but is 2",
        ),
    ],
)
def test_a_bad_caption_file_gives_one_clear_line(tmp_path: Path, name: str, content: Any, says: str) -> None:
    assert says in one_line(read_captions, write(tmp_path / name, content))


@pytest.mark.parametrize("missing", ["filename", "split", "sentences"])
def test_a_missing_field_is_named_with_its_entry(tmp_path: Path, missing: str) -> None:
    data = karpathy()
    data["images"].append({k: v for k, v in data["images"][0].items() if k != missing})
    message = one_line(read_captions, write(tmp_path / "d.json", data))
    assert message.endswith(f"images[1] has no field `{missing}`")


def test_an_absent_split_is_named_beside_those_that_exist(tmp_path: Path) -> None:
    path = write(tmp_path / "d.json", karpathy())
    assert "no split 'val'; it holds train (1)" in one_line(read_captions, path, split="val")
    with pytest.raises(ValueError, match="`split` must be train, val or test, but is 'dev'"):
        read_captions(path, split="dev")


def test_an_absent_file_and_a_folder_give_one_line_each(tmp_path: Path) -> None:
    for read in (read_captions, read_fasta, read_madlibs):
        assert "no such file" in one_line(read, tmp_path / "absent.json")
        assert "cannot be read" in one_line(read, tmp_path)


# FASTA


@unhurried
@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[A-Za-z0-9|_.]{1,12}", fullmatch=True),
            st.from_regex(r"([A-Za-z0-9]{1,8}( [a-z]{1,5})?)?", fullmatch=True),
            st.text(alphabet="ACGTacgtNnRY-*", max_size=200),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(min_value=1, max_value=80),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
)
def test_fasta_reads_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], width: int, packed: bool, newline: str
) -> None:
    text = ""
    for name, description, letters in records:
        lines = [letters[k : k + width] for k in range(0, len(letters), width)]
        text += newline.join([f">{name} {description}".rstrip(), *lines, ""])
    data = text.encode()
    path = tmp_path_factory.mktemp("fasta") / "s.fa"
    path.write_bytes(gzip.compress(data, mtime=0) if packed else data)
    assert [(r.name, r.description, r.letters) for r in read_fasta(path)] == records


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty"),
        ("ACGT\n>late\nAC", "line 1: a FASTA file must begin with `>`"),
        ("; only a comment\n", "has no FASTA record"),
        (b">a\nAC\xff", "is not UTF-8"),
        (gzip.compress(b">a\nACGT" * 99, mtime=0)[:-12], "damaged gzip"),
    ],
)
def test_a_bad_fasta_file_gives_one_clear_line(tmp_path: Path, content: Any, says: str) -> None:
    assert says in one_line(read_fasta, write(tmp_path / "s.fa", content))


# Visual Madlibs


def official(name: str, **changes: Any) -> dict[str, Any]:
    entry = {
        "image_id": 32258,
        "prompt": ["The person is ", " the dog."],
        "fitbs": ["petting", "playing with", "petting"],
        "person_id_list": [11],
        "object_id_list": [12, 13],
    }
    entry.update(changes)
    return {name: [{k: v for k, v in entry.items() if v is not ...}]}


@pytest.mark.parametrize(("number", "name"), MADLIBS_TYPES.items())
def test_every_official_type_is_known_by_name_and_number(tmp_path: Path, number: int, name: str) -> None:
    assert madlibs_type(number) == madlibs_type(name) == madlibs_type(f"tr_{name}") == number
    path = write(tmp_path / f"tr_{name}.json", official(f"tr_{name}"))
    (madlib,) = read_madlibs(path)
    assert (madlib.type, madlib.image_id, madlib.split) == (number, 32258, "train")
    assert (madlib.left, madlib.answers, madlib.right) == (
        "The person is",
        ("petting", "playing with", "petting"),
        "the dog.",
    )
    assert (madlib.person_ids, madlib.object_ids) == ((11,), (12, 13))


def test_the_twelve_types_are_distinct_even_without_their_plural() -> None:
    assert sorted(MADLIBS_TYPES) == list(range(1, 13))
    assert [madlibs_type(name.removesuffix("s")) for name in MADLIBS_TYPES.values() if name[-3:] != "ies"] == [
        number for number, name in MADLIBS_TYPES.items() if name[-3:] != "ies"
    ]


def test_a_type_about_the_whole_picture_needs_no_person(tmp_path: Path) -> None:
    data = official("tr_scenes", person_id_list=..., object_id_list=..., prompt=["The place is a(n)"])
    (madlib,) = read_madlibs(write(tmp_path / "tr_scenes.json", data))
    assert (madlib.person_ids, madlib.object_ids, madlib.right) == ((), (), "")


def test_a_file_of_another_name_is_read_when_its_type_is_given(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.json", official("mine"))
    assert "`type` must be one of 1 scenes, 2 emotions" in one_line(read_madlibs, path)
    assert [madlib.type for madlib in read_madlibs(path, type="futures")] == [5]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (official("tr_pasts", image_id=...), "tr_pasts[0] has no field `image_id`"),
        (official("tr_pasts", prompt=["a", "b", "c"]), "tr_pasts[0]: `prompt` must be the text before and"),
        (official("tr_pasts", fitbs=[]), "tr_pasts[0]: `fitbs` must hold at least one answer"),
        (official("tr_pasts", fitbs=[3]), "tr_pasts[0]: `fitbs` must be a list of str, but holds 3"),
        (official("tr_pasts", person_id_list=["a"]), "`person_id_list` must be a list of int"),
        ({"tr_pasts": []}, "`tr_pasts` is empty"),
        ({"tr_pasts": {}}, "`tr_pasts` must be a list"),
        ({"a": [], "b": []}, "one object with one key"),
    ],
)
def test_a_bad_madlibs_file_gives_one_clear_line(tmp_path: Path, content: Any, says: str) -> None:
    assert says in one_line(read_madlibs, write(tmp_path / "tr_pasts.json", content))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"blank": ...}, "line 1 has no field `blank`"),
        ({"type": 13}, "line 1: `type` must be one of"),
        ({"split": "dev"}, "line 1: `split` must be train, val or test, but is 'dev'"),
        ({"person_box": [1, 2]}, "line 1: `person_box` must be four numbers"),
    ],
)
def test_a_bad_derived_line_gives_one_clear_line(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    entry = {"id": 0, "image_id": 1, "type": 12, "split": "train", "left": "a", "blank": "b", "right": "c"}
    line = json.dumps({k: v for k, v in (entry | change).items() if v is not ...})
    assert says in one_line(read_madlibs, write(tmp_path / "m.jsonl", line))


# The real files


@pytest.mark.slow
def test_the_real_karpathy_file_has_its_stated_counts_tokens_and_features(real: Path) -> None:
    path = real / "coco/dataset_coco.json"
    images = list(read_captions(path))
    pictures = Counter(image.split for image in images)
    captions = Counter(image.split for image in images for _ in image.captions)
    assert pictures == {"train": 38_996, "val": 3_540, "test": 2_204}
    assert captions == {"train": 150_277, "val": 11_299, "test": 11_013}
    entries = json.loads(path.read_text(encoding="utf-8"))["images"]
    assert all(
        image.captions == tuple(tuple(sentence["tokens"]) for sentence in entry["sentences"])
        for image, entry in zip(images, entries, strict=True)
    )
    features = Features.load(real / "coco/features_efficientnet_lite0.npy", real / "coco/features_ids.json")
    assert (len(features), features.size) == (44_740, 1280)
    assert features.missing([image.image_id for image in images]) == []


@pytest.mark.slow
def test_the_real_text_and_json_lines_have_their_stated_counts(real: Path) -> None:
    assert sum(1 for _ in read_captions(real / "coco/captions_without_images.txt")) == 77_822
    flickr = list(read_captions(real / "flickr30k/captions.jsonl"))
    assert len(flickr) == 23_623
    assert {len(image.captions) for image in flickr} == {5}
    assert all(image.image_id == image.filename for image in flickr)


def test_the_real_madlibs_have_their_stated_counts(real: Path) -> None:
    madlibs = list(read_madlibs(real / "madlibs/type12.jsonl", type="pair_relationships"))
    assert Counter(madlib.split for madlib in madlibs) == {"train": 4_431, "val": 611, "test": 625}
    assert all(madlib.person_box and madlib.object_box for madlib in madlibs)
    assert "no Madlib of type 7" in one_line(read_madlibs, real / "madlibs/type12.jsonl", type=7)


def test_the_real_genomes_keep_every_letter(real: Path) -> None:
    for path in sorted((real / "dna").glob("*.fa.gz")):
        (genome,) = read_fasta(path)
        text = gzip.decompress(path.read_bytes()).decode()
        header, letters = text.split("\n", 1)
        assert f">{genome.name} {genome.description}" == header
        assert genome.letters == letters.replace("\n", "")
        assert genome.letters.count("N") == (1 if path.name.startswith("SJM180") else 0)


# Rows to fill


class Chunks:
    """A stream that comes in pieces, each of which must not be copied by adding it to what came before."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter([Piece(piece) for piece in pieces if piece])

    def read1(self, size: int) -> bytes:
        return next(self._pieces, b"")


class Piece(bytes):
    def __add__(self, other: object) -> bytes:
        raise AssertionError("a long line would be copied with each of its pieces")

    __radd__ = __add__


@unhurried
@given(st.lists(st.binary(max_size=6).map(lambda data: data.replace(b"x", b"\n")), max_size=12))
def test_rows_do_not_depend_on_how_a_stream_is_cut(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    rows = [row for some in read_rows(Chunks(pieces), "it", as_json=False) for row in some]  # type: ignore[arg-type]
    lines = whole.split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    assert [row.name for row in rows] == [f"it, line {number}" for number in range(1, len(lines) + 1)]
    expected = [line.decode("utf-8-sig", errors="replace").rstrip("\r") for line in lines]
    assert [row.template for row in rows] == expected


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("content", [b"", b"a\n", b"a\nb", b"\n\nb\n" * 50_000])
def test_lines_are_counted_as_they_are_read(tmp_path: Path, content: bytes, packed: bool) -> None:
    path = write(tmp_path / "rows.txt", gzip.compress(content) if packed else content)
    with open_bytes(path) as source:
        rows = [row for some in read_rows(source, "it", as_json=False) for row in some]
    assert count_lines(path) == len(rows)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a.jsonl", True),
        ("a.JSONL.gz", True),
        ("a.ndjson", True),
        ("a.json", False),
        ("a.txt", False),
        ("jsonl", False),
    ],
)
def test_json_lines_are_told_by_their_name(name: str, told: bool) -> None:
    assert is_json_lines(Path(name)) == told
