"""Processes that share every batch train what one process trains."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bibs.training import FeatureFiles, Sources, TrainingSettings, train
from tiny_captions import make_home

SETTINGS = TrainingSettings(
    hidden_size=8, embedding_size=8, cutoffs=(5,), dropout=0.0, picture_dropout=0.3, epochs=3, batch_size=5
)
PROGRAM = """
import sys
from pathlib import Path
from bibs.training import team
from test_training_team import SETTINGS, sources
from bibs.training import train
home = Path(sys.argv[1])
with team.joined():
    train(sources(home), SETTINGS, home / "two", checkpoint_seconds=0)
"""


def sources(home: Path) -> Sources:
    features = FeatureFiles(home / "features.npy", home / "ids.json")
    return Sources(data=(home / "train.json",), features=features, min_count=1)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Eleven pictures to train on, so that the last batch has a caption for one process alone."""
    home = make_home(tmp_path_factory.mktemp("team"))
    images = json.loads((home / "data.json").read_text())["images"]
    for number, image in enumerate(images):
        image["split"] = "val" if number == 11 else "train"
    (home / "train.json").write_text(json.dumps({"images": images}))
    return home


@pytest.mark.slow
def test_two_processes_have_the_loss_curve_of_one_with_the_same_batches(home):
    captions = sum(len(image["sentences"]) for image in json.loads((home / "train.json").read_text())["images"][:11])
    assert captions % SETTINGS.batch_size == 1
    one = train(sources(home), SETTINGS, home / "one", in_parallel=False)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    told = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    team = [subprocess.Popen([sys.executable, "-c", PROGRAM, home], env={**told, "RANK": str(k)}) for k in range(2)]
    assert [process.wait(120) for process in team] == [0, 0]
    written = json.loads((home / "two" / "config.json").read_text())["result"]
    for name, result in (("forward", one.forward), ("backward", one.backward)):
        np.testing.assert_allclose(written[name]["val_losses"], result.val_losses, rtol=1e-5)
    with pytest.raises(ValueError, match="belongs to another run: the number of processes differs"):
        train(sources(home), SETTINGS, home / "two", resume=True, in_parallel=False)
