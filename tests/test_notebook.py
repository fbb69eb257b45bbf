"""The notebook runs from its first cell to its last, and what is committed with it came from such a run.

`BIBS_WRITE_NOTEBOOK=1 pytest tests/test_notebook.py` writes new outputs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parent.parent / "examples" / "tutorial.ipynb"


def test_the_committed_outputs_are_of_one_run_from_top_to_bottom_and_small() -> None:
    assert NOTEBOOK.stat().st_size < 200_000
    code = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(cell["outputs"] for cell in code)
    assert "error" not in {output["output_type"] for cell in code for output in cell["outputs"]}


@pytest.mark.slow
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import nbclient
    import nbformat

    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    committed = kinds_of_outputs(notebook)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    if "BIBS_WRITE_NOTEBOOK" in os.environ:
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # the times of the run
        nbformat.write(notebook, NOTEBOOK)
    else:
        assert kinds_of_outputs(notebook) == committed


def kinds_of_outputs(notebook: Any) -> list[set[str]]:
    """Per cell of code: printed text, a picture, a value. A cell that has become another one has other kinds."""
    return [
        {output["output_type"] for output in cell["outputs"]} for cell in notebook.cells if cell.cell_type == "code"
    ]
