"""The engine `ray`: what it writes is what the engine `local` writes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from bibs.cli import main
from bibs.scale.job import Engine, fill_files
from row_files import ROWS, Echo, Here, write_lines

pytest.importorskip("ray", reason="needs the extra: pip install '.[ray]'")


@pytest.mark.skipif("BIBS_TEST_RAY" not in os.environ, reason="a whole Ray takes its time: set BIBS_TEST_RAY=1")
def test_ray_writes_what_a_process_writes_though_a_worker_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    source = tmp_path / "rows"
    source.mkdir()
    write_lines(source / "a.jsonl", ROWS)
    pq.write_table(pa.Table.from_pylist(ROWS), source / "b.parquet")
    for engine, deaths in ((Here(), 0), (Engine("ray", 1), 1)):
        loader = Echo(tmp_path, deadly=30, deaths=deaths)
        summary = fill_files(loader, [source], tmp_path / engine.name, options={}, engine=engine, shard_rows=20)
        assert (summary.filled, summary.failures) == (100, [])
    assert len(list(tmp_path.glob("death-*"))) == 1

    def written(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.glob("part-*")}

    assert len(written(tmp_path / "ray")) == 6
    assert written(tmp_path / "ray") == written(tmp_path / "local")


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}", "nonsense"])
def test_an_address_where_no_ray_is_is_one_line_and_nothing_is_written(tmp_path, monkeypatch, capsys, address):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = address.format(port=free.getsockname()[1])
    rows = write_lines(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "captions.txt").write_text("a man is riding a wave\n")
    given = ["--corpus", tmp_path / "captions.txt", "--input", rows, "--output", tmp_path / "out"]
    monkeypatch.setattr("sys.argv", ["bibs", "fill", *map(str, given), "--engine", "ray", "--address", address])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bibs: no Ray answers at `--address` {address}: ")
    assert not (tmp_path / "out").exists()
