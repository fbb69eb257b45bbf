"""Pictures a second of either encoder, from JPEG files to vectors, and the share of the time that is decoding."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TypeAlias

import numpy as np

from bibs.vision import EfficientNetLite0, EfficientNetLite2, encode_files, load_image

NUM_PICTURES = 600

Encoder: TypeAlias = EfficientNetLite0 | EfficientNetLite2


def run() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        paths = _pictures(Path(folder))
        return [row for encoder in (EfficientNetLite0(), EfficientNetLite2()) for row in _rows(paths, encoder)]


def _rows(paths: list[Path], encoder: Encoder) -> list[dict[str, object]]:
    began = time.process_time()
    for path in paths[:100]:
        load_image(path).resize((encoder.variant.image_size,) * 2, 3)  # 3: bicubic
    decoding = (time.process_time() - began) / 100
    return [_row(paths, encoder, num_threads, decoding) for num_threads in (1, 2)]


def _row(paths: list[Path], encoder: Encoder, num_threads: int, decoding: float) -> dict[str, object]:
    began, cpu = time.perf_counter(), time.process_time()
    encoded = sum(len(batch.paths) for batch in encode_files(paths, encoder, num_threads=num_threads))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "encoder": encoder.name,
        "threads": num_threads,
        "pictures a second": round(encoded / seconds, 1),
        "cores in use": round(cpu / seconds, 2),
        "pictures a second of one core": round(encoded / cpu, 1),
        "decoding": f"{decoding * encoded / cpu:.0%}",
    }


def _pictures(folder: Path) -> list[Path]:
    real = Path(os.environ.get("BIBS_DATA", "")) / "coco/images/train2017"
    if real.is_dir():
        return sorted(real.glob("*.jpg"))[:NUM_PICTURES]
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(NUM_PICTURES):
        coarse = Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8))
        coarse.resize((256, 256)).save(folder / f"{number}.jpg", quality=90)
    return sorted(folder.glob("*.jpg"))
