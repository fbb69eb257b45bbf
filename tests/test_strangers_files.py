"""Files from strangers: whatever they hold, they are read, or refused in one line. `BIBS_FUZZ=2000` looks harder."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from bibs import Infiller, Template
from bibs.data import read_captions, read_fasta, read_madlibs, read_rows
from bibs.models.directory import load_pair, load_vocabulary, save_pair
from bibs.models.storage import load_metadata, load_tensors
from bibs.training import Sources, TrainingSettings
from bibs.training.record import CHECKPOINTS, Record, load_record, read_settings, read_sources
from tiny_captions import make_home

fuzz = settings(
    max_examples=int(os.environ.get("BIBS_FUZZ", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NAMES = ["config.json", "vocabulary.txt", "forward.safetensors", "backward.safetensors", "lengths.json"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)

RECORD = dict(Record.of(Sources((Path("notes.txt"),)), TrainingSettings()).options)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A directory of each kind."""
    home = tmp_path_factory.mktemp("originals")
    Infiller.from_corpus(["a cat on a mat", "a dog", "the cat sat on the dog"]).save(home / "counted")
    recurrent = make_home(home) / "model"
    Infiller.from_pretrained(recurrent).save(home / "recurrent")  # with lengths.json
    shutil.copytree(home / "recurrent", home / "integers")
    save_pair(home / "integers", *load_pair(recurrent), load_vocabulary(recurrent), storage="int8")
    return {name: home / name for name in ("counted", "recurrent", "integers")}


def said(action: Callable[[], object]) -> str:
    """What a refusal says, in one line; nothing where there is none. Any other exception is a failure."""
    try:
        action()
    except ValueError as error:
        refusal = str(error)
    else:
        return ""
    assert refusal
    assert "\n" not in refusal
    return refusal


def load_or_refuse(directory: Path) -> None:
    """What is loaded can be used, too."""
    infillers: list[Infiller] = []
    refusal = said(lambda: infillers.append(Infiller.from_pretrained(directory, precision="float32")))
    if refusal:
        assert str(directory) in refusal
    else:
        infillers[0](["a _ on", "the ___"], max_length=3)


def changed(originals: dict[str, Path], kind: str, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    return Path(shutil.copytree(originals[kind], place))


@pytest.mark.parametrize("kind", ["counted", "recurrent"])
@fuzz
@given(data=st.data())
def test_bytes_changed_anywhere(kind: str, originals: dict[str, Path], tmp_path: Path, data: st.DataObject) -> None:
    model = changed(originals, kind, tmp_path / "model")
    path = model / data.draw(st.sampled_from(NAMES))
    content = bytearray(path.read_bytes())
    first = data.draw(st.integers(0, min(len(content) - 1, 400) if data.draw(st.booleans()) else len(content) - 1))
    content[first : first + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    path.write_bytes(content[: data.draw(st.none() | st.integers(0, len(content)))])
    load_or_refuse(model)


@pytest.mark.parametrize("kind", ["counted", "integers"])
@fuzz
@given(data=st.data())
def test_any_tensors_under_the_names_of_a_model(
    kind: str, originals: dict[str, Path], tmp_path: Path, data: st.DataObject
) -> None:
    model = changed(originals, kind, tmp_path / "model")
    path = model / "forward.safetensors"
    tensors = load_file(path)
    name = data.draw(st.sampled_from(sorted(tensors)))
    dtypes = [torch.int64, torch.int32, torch.int8, torch.float32, torch.float16, torch.bool]
    dtype = data.draw(st.sampled_from(dtypes))
    numbers = st.integers(-3, 60) | st.sampled_from([2**62, -(2**62)])
    values = data.draw(st.lists(numbers, max_size=tensors[name].numel() + 2))
    other = torch.tensor(values, dtype=torch.float64).to(dtype)
    if data.draw(st.booleans()) and len(values) >= tensors[name].numel():
        other = other[: tensors[name].numel()].reshape(tensors[name].shape)
    tensors[name] = other if data.draw(st.booleans()) or not values else other.flatten()[0]
    save_file(tensors, path)
    load_or_refuse(model)


def test_an_n_gram_model_with_numbers_of_two_precisions_is_refused(originals: dict[str, Path], tmp_path: Path) -> None:
    model = changed(originals, "counted", tmp_path / "model")
    path = model / "forward.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "1.log_backoffs": tensors["1.log_backoffs"].half()}, path)
    with pytest.raises(ValueError, match=f"^{path} is damaged: its tensors do not make an n-gram model$"):
        Infiller.from_pretrained(model)


@pytest.mark.parametrize("kind", ["counted", "recurrent"])
@fuzz
@given(data=st.data())
def test_any_json_in_the_configuration(
    kind: str, originals: dict[str, Path], tmp_path: Path, data: st.DataObject
) -> None:
    model = changed(originals, kind, tmp_path / "model")
    path = model / data.draw(st.sampled_from(["config.json", "lengths.json"]))
    values = json.loads(path.read_text())
    inner = [part for part in (values, *values.values()) if isinstance(part, dict) and part]
    part = data.draw(st.sampled_from(inner))
    part[data.draw(st.sampled_from(sorted(part)) | st.text(max_size=4))] = data.draw(JSON)
    path.write_text(json.dumps(values))
    load_or_refuse(model)


READERS: dict[str, Callable[[Path], Any]] = {
    "captions.json": read_captions,
    "captions.jsonl": read_captions,
    "notes.txt": read_captions,
    "genome.fa": read_fasta,
    "madlibs.jsonl": lambda path: read_madlibs(path, type=12),
}


@pytest.mark.parametrize("name", READERS)
@fuzz
@given(content=st.binary(max_size=60) | JSON.map(json.dumps).map(str.encode), packed=st.booleans())
def test_a_reader_reads_or_refuses_in_one_line(name: str, tmp_path: Path, content: bytes, packed: bool) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content, 1)[: len(content) + 18] if packed else content)
    said(lambda: list(READERS[name](path)))


@fuzz
@given(st.binary(max_size=80) | st.lists(JSON.map(json.dumps)).map("\n".join).map(str.encode), st.booleans())
def test_every_line_is_a_row_and_every_row_a_template_or_an_error(content: bytes, as_json: bool) -> None:
    rows = [row for rows in read_rows(io.BytesIO(content), "rows", as_json=as_json) for row in rows]  # type: ignore[arg-type]
    assert len(rows) == len(content.split(b"\n")) - (content.endswith(b"\n") or not content)
    for row in rows:
        if not row.error:
            said(lambda text=row.template: Template.parse(text))  # type: ignore[misc]


def test_a_pickle_under_the_name_of_weights_is_not_run(originals: dict[str, Path], tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "was-run",)

    assert pickle.loads(pickle.dumps(Runs())) is None  # it would run
    (tmp_path / "was-run").unlink()
    for kind in originals:
        for name in NAMES:
            model = changed(originals, kind, tmp_path / "model")
            (model / name).write_bytes(pickle.dumps(Runs()))
            with pytest.raises(ValueError, match=name):
                Infiller.from_pretrained(model)
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("load", [load_metadata, load_tensors])
def test_a_file_that_claims_to_be_large_asks_for_no_memory(load: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes((1 << 33).to_bytes(8, "little") + b"{}")
    tracemalloc.start()
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        load(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


@pytest.mark.parametrize(
    "header",
    [b"[" * 100_000, b"[]", b"3", b"\xff"] + [b'{"__metadata__":%s}' % it for it in (b"3", b"[1]", b'{"a":3}')],
)
def test_a_header_that_is_none_is_one_line(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    for load in (load_metadata, load_tensors):
        assert "is not a whole safetensors file" in said(lambda load=load: load(path))  # type: ignore[misc]


def test_what_the_header_of_a_file_says_is_read(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "a.safetensors", metadata={"epoch": "3"})
    assert load_metadata(tmp_path / "a.safetensors") == {"epoch": "3"}


@fuzz
@given(name=st.sampled_from(sorted(RECORD)), value=JSON)
def test_any_json_in_the_record_of_a_training_run(name: str, value: object, tmp_path: Path) -> None:
    place = tmp_path / CHECKPOINTS / "run.json"
    place.parent.mkdir(exist_ok=True)
    options = RECORD | {name: value}
    place.write_text(json.dumps({"options": options, "command": value if name == "data" else [], "earlier_epochs": []}))

    def read() -> None:
        record = load_record(tmp_path)
        assert record is not None
        Record.of(read_sources(record.options), read_settings(record.options), command=record.command)
        assert record.resumed_by(record) == record

    said(read)
