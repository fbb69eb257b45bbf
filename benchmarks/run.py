"""`make bench`: every benchmark as a table, and as JSON in benchmarks/results.json. Names run only those."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads starve each other on a shared machine
sys.path.insert(0, str(Path(__file__).parent))


def main(names: list[str]) -> None:
    import departures
    import floor
    import growth
    import latency
    import message_form
    import pictures
    import precision
    import rounds
    import speed
    import starts
    import torch
    from rich.console import Console
    from rich.table import Table

    benchmarks = {
        "message_form": message_form,
        "rounds": rounds,
        "starts": starts,
        "departures": departures,
        "floor": floor,
        "growth": growth,
        "pictures": pictures,
        "latency": latency,
        "precision": precision,
        "speed": speed,
    }
    unknown = set(names) - set(benchmarks)
    if unknown:
        raise SystemExit(f"benchmarks must be among {', '.join(benchmarks)}, but {', '.join(unknown)} is asked for")
    results = {}
    for name in names or benchmarks:
        module = benchmarks[name]
        results[name] = module.run()
        table = Table(*results[name][0], title=(module.__doc__ or name).strip())
        for row in results[name]:
            table.add_row(*map(str, row.values()))
        Console(width=max(120, Console().width)).print(table)
    path = Path(__file__).parent / "results.json"
    path.write_text(json.dumps({"threads": torch.get_num_threads(), **results}, indent=2) + "\n", encoding="utf-8")
    print(f"written to {os.path.relpath(path)}")


if __name__ == "__main__":
    main(sys.argv[1:])
