"""Image vectors on disk: found by id, and whole at every moment of being written."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from typer.testing import CliRunner

import bibs
from bibs.data import Features, FeatureStore, find_pictures
from bibs.data.feature_store import STORE_NAME, VECTORS_NAME

SIZE = 3
unhurried = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def vector(image_id: int | str) -> NDArray[np.float32]:
    """A vector that can be told from its id, exact in float16."""
    number = image_id if isinstance(image_id, int) else len(image_id)
    return np.array([number % 1000, number // 1000, 0.5], dtype=np.float32)


def vectors(ids: Sequence[int | str]) -> NDArray[np.float32]:
    return np.array([vector(image_id) for image_id in ids], dtype=np.float32).reshape(-1, SIZE)


def open_store(folder: Path) -> FeatureStore:
    return FeatureStore(folder, encoder="test", size=SIZE)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_matrix(folder: Path, matrix: NDArray[Any], ids: Any) -> tuple[Path, Path]:
    np.save(folder / "f.npy", matrix)
    (folder / "ids.json").write_text(ids if isinstance(ids, str) else json.dumps(ids), encoding="utf-8")
    return folder / "f.npy", folder / "ids.json"


# A matrix and its ids


@unhurried
@given(
    st.lists(st.one_of(st.integers(0, 10**9), st.text(min_size=1, max_size=9)), unique=True, min_size=1, max_size=9),
    st.sampled_from([np.float16, np.float32]),
    st.data(),
)
def test_rows_are_found_by_id_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, ids: list[int | str], kind: Any, data: Any
) -> None:
    matrix = np.random.default_rng(0).random((len(ids), 4)).astype(kind)
    features = Features.load(*write_matrix(tmp_path_factory.mktemp("f"), matrix, ids))
    wanted = data.draw(st.lists(st.sampled_from(ids), max_size=12))
    rows = features.rows(wanted)
    assert rows.dtype == np.float32
    assert rows.shape == (len(wanted), 4)
    for image_id, row in zip(wanted, rows, strict=True):
        expected = matrix[ids.index(image_id)].astype(np.float32)
        assert np.array_equal(row, expected)
        assert np.array_equal(features[image_id], expected)
        assert features[image_id].dtype == np.float32
    assert (features.size, len(features), list(features)) == (4, len(ids), ids)


def test_ids_without_features_are_counted_and_named(tmp_path: Path) -> None:
    features = Features.load(*write_matrix(tmp_path, np.zeros((2, 4), np.float16), [7, "a.jpg"]))
    assert 7 in features
    assert "7" not in features
    assert features.missing([8, 7, 9, 8]) == [8, 9]
    with pytest.raises(ValueError, match=r"but 2 of 3 have none: 8, 'b.jpg'"):
        features.rows([8, 7, "b.jpg", 8])
    with pytest.raises(KeyError):
        features[8]


@pytest.mark.parametrize(
    ("matrix", "ids", "says"),
    [
        (np.zeros((2, 4)), [1], "2 rows, but 1 ids"),
        (np.zeros((2, 4)), [1, 1], "`ids` must be distinct, but 1 stands there twice"),
        (np.zeros((2, 4)), [1, None], "id 1 must be an integer or a string, but is null"),
        (np.zeros((2, 4)), [1, True], "id 1 must be an integer or a string, but is true"),
        (np.zeros((2, 4)), {"a": 1}, "must hold a JSON list of image ids"),
        (np.zeros((2, 4)), "[1, 2", "is not JSON"),
        (np.zeros(2), [1, 2], "two dimensions (pictures, size), but has 1"),
        (np.zeros((2, 4), np.int32), [1, 2], "floating-point numbers, but holds int32"),
    ],
)
def test_features_that_do_not_fit_their_ids_give_one_line(
    tmp_path: Path, matrix: NDArray[Any], ids: Any, says: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Features.load(*write_matrix(tmp_path, matrix, ids))
    assert says in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_absent_or_wrong_matrix_gives_one_line(tmp_path: Path) -> None:
    path, ids = write_matrix(tmp_path, np.zeros((2, 4)), [1, 2])
    whole = path.read_bytes()
    pickled = tmp_path / "pickled.npy"
    np.save(pickled, np.array([{}, {}], dtype=object))
    archive = tmp_path / "many.npz"
    np.savez(archive, a=np.zeros((2, 4)))
    bad = {
        tmp_path / "absent.npy": "no such file",
        pickled: "is not a readable .npy matrix",
        archive: "is an archive",
    }
    for number, content in enumerate([b"", b"not numpy", whole[:-9], whole[:50]]):
        bad[tmp_path / f"{number}.npy"] = "is not a readable .npy matrix"
        (tmp_path / f"{number}.npy").write_bytes(content)
    for file, says in bad.items():
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            Features.load(file, ids)
        assert says in str(caught.value)
        assert str(file) in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="`ids` must name the file"):
        Features.load(path)


# The store


def test_a_store_gives_back_what_was_appended_over_several_runs(tmp_path: Path) -> None:
    batches: list[list[int | str]] = [[1, 2], ["ü.jpg"], [], [30_000, "b\n.png", 5]]
    for batch in batches:
        with open_store(tmp_path / "s") as store:
            store.append(batch, vectors(batch))
    ids = [image_id for batch in batches for image_id in batch]
    features = Features.load(tmp_path / "s")
    assert list(features) == ids
    assert np.array_equal(features.rows(ids), vectors(ids))
    plain = np.load(tmp_path / "s" / VECTORS_NAME)
    assert plain.dtype == np.float16
    assert np.array_equal(plain.astype(np.float32), vectors(ids))


def test_an_empty_store_has_a_size_and_no_rows(tmp_path: Path) -> None:
    open_store(tmp_path / "s").close()
    features = Features.load(tmp_path / "s")
    assert (len(features), features.size) == (0, SIZE)
    assert np.load(tmp_path / "s" / VECTORS_NAME).shape == (0, SIZE)


def test_a_store_of_another_encoder_or_size_is_refused_and_left_alone(tmp_path: Path) -> None:
    with open_store(tmp_path / "s") as store:
        store.append([1], vectors([1]))
    before = contents(tmp_path / "s")
    for encoder, size in [("vgg", SIZE), ("test", SIZE + 1)]:
        with pytest.raises(ValueError, match=rf"another encoder \(test, size 3\), not of {encoder}, size {size}"):
            FeatureStore(tmp_path / "s", encoder=encoder, size=size)
    assert contents(tmp_path / "s") == before


def test_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "s"), pytest.raises(ValueError, match="another process is writing"):
        open_store(tmp_path / "s")
    open_store(tmp_path / "s").close()


@pytest.mark.parametrize(
    ("ids", "rows", "says"),
    [
        ([1, 2], np.zeros((1, SIZE)), r"shape \(2, 3\), but has \(1, 3\)"),
        ([1], np.zeros((1, SIZE + 1)), r"shape \(1, 3\), but has \(1, 4\)"),
        ([7], np.zeros((1, SIZE)), "new to the store, but 7 is not"),
        ([1, 1], np.zeros((2, SIZE)), "new to the store, but 1 is not"),
        ([1, 2], np.array([[0, 0, 0], [0, np.nan, 0]]), "finite and below 65,504, but that of 2 is not"),
        ([1], np.full((1, SIZE), 1e5), "finite and below 65,504"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_whole(
    tmp_path: Path, ids: list[int], rows: NDArray[Any], says: str
) -> None:
    with open_store(tmp_path / "s") as store:
        store.append([7], vectors([7]))
        before = contents(tmp_path / "s")
        with pytest.raises(ValueError, match=says):
            store.append(ids, rows)
        assert contents(tmp_path / "s") == before


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"no feature store: it has no {STORE_NAME}"):
        Features.load(tmp_path)
    (tmp_path / VECTORS_NAME).write_bytes(b"someone's own")
    with pytest.raises(ValueError, match=f"no feature store, but holds {VECTORS_NAME}"):
        open_store(tmp_path)
    assert contents(tmp_path) == {VECTORS_NAME: b"someone's own"}


def test_a_store_damaged_by_others_is_named(tmp_path: Path) -> None:
    with open_store(tmp_path / "s") as store:
        store.append([1, 2], vectors([1, 2]))
    whole = (tmp_path / "s" / VECTORS_NAME).read_bytes()
    (tmp_path / "s" / VECTORS_NAME).write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="is damaged"):
        Features.load(tmp_path / "s")
    with pytest.raises(ValueError, match="is damaged"):
        open_store(tmp_path / "s")
    (tmp_path / "s" / STORE_NAME).write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        Features.load(tmp_path / "s")


# Killed at any moment, and disks that fill up


class KilledError(BaseException):
    """Stands for kill -9: nothing of the process runs after it."""


class Disk:
    """A file whose disk allows so many bytes more, over all files together; then `error` is raised."""

    def __init__(self, file: Any, budget: list[int], error: BaseException) -> None:
        self.file, self.budget, self.error = file, budget, error

    def __getattr__(self, name: str) -> Any:
        # A killed process does nothing more; on a full disk, everything but writing still works.
        if self.budget[0] < 0 and isinstance(self.error, KilledError):
            raise self.error
        return getattr(self.file, name)

    def write(self, data: bytes) -> int:
        allowed = min(len(data), max(0, self.budget[0]))
        self.file.write(data[:allowed])
        self.budget[0] -= len(data)
        if allowed < len(data):
            raise self.error
        return allowed


BATCHES: list[list[int | str]] = [[11, 13_000], ["x.jpg"]]


def fill(store: FeatureStore) -> None:
    for batch in BATCHES:
        left = [image_id for image_id in batch if image_id not in store]
        store.append(left, vectors(left))


def run_out_after(store: FeatureStore, num_bytes: int, error: BaseException) -> None:
    budget = [num_bytes]
    store._vectors = Disk(store._vectors, budget, error)  # type: ignore[assignment]
    store._journal = Disk(store._journal, budget, error)  # type: ignore[assignment]


def whole_run(folder: Path) -> tuple[dict[str, bytes], int]:
    """What an uninterrupted run leaves, and how many bytes it writes."""
    with open_store(folder) as store:
        run_out_after(store, 10**9, KilledError())
        budget = store._vectors.budget  # type: ignore[attr-defined]
        fill(store)
    return contents(folder), 10**9 - budget[0]


def is_whole(folder: Path) -> list[int | str]:
    """The ids that a reader sees, each with its own vector; also for one who reads the .npy file alone."""
    features = Features.load(folder)
    ids = list(features)
    assert np.array_equal(features.rows(ids), vectors(ids))
    plain = np.load(folder / VECTORS_NAME)
    assert len(plain) <= len(ids)
    assert np.array_equal(plain.astype(np.float32), vectors(ids[: len(plain)]))
    return ids


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the disk guards against power cuts, which no test here plays; kills need none of it."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.usefixtures("no_waiting")
def test_a_kill_after_any_byte_leaves_a_whole_store_that_goes_on(tmp_path: Path) -> None:
    expected, num_bytes = whole_run(tmp_path / "whole")
    everything = [image_id for batch in BATCHES for image_id in batch]
    seen = set()
    for budget in range(num_bytes):
        folder = tmp_path / str(budget)
        store = open_store(folder)
        run_out_after(store, budget, KilledError())
        with pytest.raises(KilledError):
            fill(store)
        store.close()  # as the system does for a process that is gone
        kept = is_whole(folder)
        assert kept == everything[: len(kept)]
        # Every batch that was said to be kept is kept: only the one in flight may be lost.
        assert len(store) <= len(kept)
        with open_store(folder) as again:
            assert len(again) == len(kept)
            fill(again)
        assert contents(folder) == expected
        seen.add(len(kept))
    assert seen == set(range(len(everything) + 1))


@pytest.mark.usefixtures("no_waiting")
def test_a_full_disk_keeps_all_before_and_nothing_of_the_batch(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    extra = vectors([21, 22])
    for budget in range(2 * SIZE * 2 + 6):
        folder = tmp_path / str(budget)
        with open_store(folder) as store:
            fill(store)
            before = contents(folder)
            run_out_after(store, budget, full)
            with pytest.raises(OSError, match=r"cannot write to .*: No space left .*; the 3 vectors before are kept"):
                store.append([21, 22], extra)
            assert len(store) == 3
        # The header is rewritten in place, which the exhausted budget forbids here and a full disk does not.
        assert contents(folder) == before
        with open_store(folder) as store:
            store.append([21, 22], extra)
        assert is_whole(folder)[3:] == [21, 22]


def test_a_disk_too_full_for_a_new_store_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(OSError, match=r"cannot write to .*: No space left"):
        open_store(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


WRITER = textwrap.dedent(
    """
    import resource, sys, types
    import numpy as np
    # `import bibs` loads torch, which takes longer than this whole program.
    package, folder, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.modules["bibs"] = types.ModuleType("bibs")
    sys.modules["bibs"].__path__ = [package]
    from bibs.data import FeatureStore
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        with FeatureStore(folder, encoder="test", size=3) as store:
            for number in range(120):
                if number not in store:
                    store.append([number], np.array([[number % 1000, number // 1000, 0.5]]))
                    print(number, flush=True)
    except OSError as error:
        print(f"error: {error}", flush=True)
    """
)


def start_writer(folder: Path, limit: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(Path(bibs.__file__).parent), str(folder), str(limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
def test_kill_9_loses_nothing_that_was_said_to_be_kept(tmp_path: Path) -> None:
    for moment in (3, 30):
        with start_writer(tmp_path / "s") as writer:
            assert writer.stdout is not None
            said = [int(writer.stdout.readline()) for _ in range(moment)]
            writer.send_signal(signal.SIGKILL)
            said += [int(line) for line in writer.stdout]
        kept = is_whole(tmp_path / "s")
        assert kept == list(range(len(kept)))
        assert len(kept) in (said[-1] + 1, said[-1] + 2)
    with open_store(tmp_path / "s") as store:
        rest = range(len(store), 120)
        store.append(rest, vectors(rest))
    assert is_whole(tmp_path / "s") == list(range(120))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit on file sizes to stand for a full disk")
def test_a_write_that_the_system_cuts_short_keeps_all_before(tmp_path: Path) -> None:
    # 128 bytes of header and ten vectors of six bytes fit, and half an eleventh.
    output, _ = start_writer(tmp_path / "s", limit=128 + 10 * 6 + 3).communicate()
    *said, error = output.splitlines()
    assert said == [str(number) for number in range(10)]
    assert error == f"error: cannot write to {tmp_path / 's'}: File too large; the 10 vectors before are kept"
    assert is_whole(tmp_path / "s") == list(range(10))
    assert (tmp_path / "s" / VECTORS_NAME).stat().st_size == 128 + 10 * 6


# Which pictures


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_files_folders_and_lists_name_pictures(tmp_path: Path) -> None:
    a = touch(tmp_path / "in/a.jpg")
    deep = touch(tmp_path / "in/deeper/B.PNG")
    touch(tmp_path / "in/notes.txt")
    coco = touch(tmp_path / "in/COCO_val2014_000000000042.jpg")
    odd = touch(tmp_path / "odd.xyz")
    listed = touch(tmp_path / "listed.webp")
    (tmp_path / "list.txt").write_text(f"{listed}\n\n{tmp_path / 'gone.jpg'}\n{a}\n", encoding="utf-8")
    found = find_pictures([tmp_path / "in", odd], list_file=tmp_path / "list.txt")
    assert found.paths == {42: coco, "a.jpg": a, "B.PNG": deep, "odd.xyz": odd, "listed.webp": listed}
    assert found.absent == (tmp_path / "gone.jpg",)


def test_two_files_of_one_coco_id_are_one_picture(tmp_path: Path) -> None:
    first = touch(tmp_path / "a/000000000042.jpg")
    touch(tmp_path / "b/COCO_val2014_000000000042.jpg")
    assert find_pictures([tmp_path / "a", tmp_path / "b"]).paths == {42: first}


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    touch(tmp_path / "a/x.jpg")
    touch(tmp_path / "b/x.jpg")
    with pytest.raises(ValueError, match=r"two pictures have the name x\.jpg, which is their id: .*a/x\.jpg and .*b/x"):
        find_pictures([tmp_path])
    assert list(find_pictures([tmp_path / "a", tmp_path / "a/x.jpg"]).paths) == ["x.jpg"]


def test_nothing_to_encode_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no picture found"):
        find_pictures([tmp_path])
    with pytest.raises(ValueError, match=r"no picture found \(there is no gone\.jpg\)"):
        find_pictures(["gone.jpg"])


# The command


class MeanColour:
    name = "mean-colour"
    size = SIZE

    def encode(self, images: Sequence[Any]) -> NDArray[np.float32]:
        means = [np.asarray(image).mean(axis=(0, 1)) for image in images]
        return np.array(means, dtype=np.float32).reshape(-1, SIZE)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    pytest.importorskip("PIL", reason="pictures need the extra bibs[vision]")
    module = importlib.import_module("bibs.cli.features")  # `bibs.cli.features` itself is the command

    monkeypatch.setattr("bibs.vision.make_encoder", lambda name: MeanColour())
    app = typer.Typer()
    app.command()(module.features)
    return app


def save_pictures(folder: Path, count: int) -> None:
    from PIL import Image

    folder.mkdir(exist_ok=True)
    for k in range(count):
        Image.fromarray(np.full((4, 4, 3), k, dtype=np.uint8)).save(folder / f"{k}.png")


def test_the_command_encodes_goes_on_and_names_what_it_leaves_out(tmp_path: Path, command: typer.Typer) -> None:
    save_pictures(tmp_path / "in", 5)
    arguments = [str(tmp_path / "in"), "--output", str(tmp_path / "s"), "--json"]
    first = CliRunner().invoke(command, arguments)
    assert (first.exit_code, first.stderr) == (0, "")
    summary = json.loads(first.stdout)
    assert (summary["pictures"], summary["encoded"], summary["already"]) == (5, 5, 0)
    assert Features.load(tmp_path / "s")["3.png"].tolist() == [3, 3, 3]

    save_pictures(tmp_path / "in", 7)
    (tmp_path / "in/bad.jpg").write_text("a letter")
    second = CliRunner().invoke(command, [*arguments, str(tmp_path / "gone.jpg")])
    assert second.exit_code == 1
    summary = json.loads(second.stdout)
    assert (summary["pictures"], summary["encoded"], summary["already"]) == (9, 2, 5)
    assert summary["absent"] == [str(tmp_path / "gone.jpg")]
    assert [failure["path"] for failure in summary["failed"]] == [str(tmp_path / "in/bad.jpg")]
    lines = second.stderr.splitlines()
    assert lines == [
        f"left out: 1 of the pictures named do not exist: {tmp_path / 'gone.jpg'}",
        f"left out: {tmp_path / 'in/bad.jpg'} cannot be read as a picture: no known picture format",
    ]
    assert sorted(Features.load(tmp_path / "s")) == [f"{k}.png" for k in range(7)]


def test_the_command_without_json_says_one_line(tmp_path: Path, command: typer.Typer) -> None:
    save_pictures(tmp_path / "in", 2)
    result = CliRunner().invoke(command, [str(tmp_path / "in"), "-o", str(tmp_path / "s")])
    assert result.stdout.startswith("2 pictures encoded in ")
    assert result.stdout.count("\n") == 1


def test_the_command_refuses_a_store_of_another_encoder(tmp_path: Path, command: typer.Typer) -> None:
    open_store(tmp_path / "s").close()
    save_pictures(tmp_path / "in", 1)
    result = CliRunner().invoke(command, [str(tmp_path / "in"), "-o", str(tmp_path / "s")])
    assert isinstance(result.exception, ValueError)
    assert "another encoder (test, size 3), not of mean-colour" in str(result.exception)


def test_the_command_stopped_by_hand_keeps_its_batches_and_says_so(
    tmp_path: Path, command: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_at_the_third(self: MeanColour, images: Sequence[Any]) -> NDArray[np.float32]:
        if np.asarray(images[0]).max() >= 2:
            raise KeyboardInterrupt
        return np.zeros((len(images), SIZE), dtype=np.float32)

    monkeypatch.setattr(MeanColour, "encode", stop_at_the_third)
    save_pictures(tmp_path / "in", 4)
    options = ["--batch-size", "1", "--num-threads", "1"]
    result = CliRunner().invoke(command, [str(tmp_path / "in"), "-o", str(tmp_path / "s"), *options])
    assert result.exit_code == 130
    assert result.stderr == f"stopped; the same command goes on from here ({tmp_path / 's'})\n"
    assert list(Features.load(tmp_path / "s")) == ["0.png", "1.png"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo-terminal")
def test_a_terminal_gets_a_bar(tmp_path: Path, command: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    save_pictures(tmp_path / "in", 3)
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        from bibs.cli.features import features

        features(output=tmp_path / "s", pictures=[tmp_path / "in"])
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal that nobody writes to any more
        while chunk := os.read(master, 4096):
            shown += chunk
    os.close(master)
    assert b"3/3" in shown
