"""Seconds from a fresh process to a loaded classifier, offline, for each of the four tasks.

    python benchmarks/tasks.py              # three times each, the median counts

The files may be in the system's cache; the process, its imports and the hash check are new each time. CPU seconds
tell a slow load from a busy machine. The accuracies beside these times are those of ``python -m helpers.evaluate``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from helpers.data import TASKS  # noqa: E402

LIMIT = 5.0  # seconds for load() alone, offline, that a reader is promised
CODE = """
import sys, time
start = time.perf_counter()
from helpers.models import load
imported, busy = time.perf_counter(), time.process_time()
load(sys.argv[1], device="cpu")
print(imported - start, time.perf_counter() - imported, time.process_time() - busy)
"""


def seconds(name: str) -> tuple[float, ...] | str:
    """Seconds to import, to load, and of CPU to load, in a process of its own; or why it could not be loaded."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", CODE, name], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    return tuple(map(float, done.stdout.split()[-3:]))


def main() -> int:
    """Print a row a task; 1 where one takes longer than the limit or cannot be loaded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="fresh processes a task (default: 3)")
    parser.add_argument("--models", nargs="+", default=[f"minilm-{task}" for task in TASKS])
    options = parser.parse_args()
    failed = False
    print("| model | import, s | load, s | slowest load, s | load, CPU s |\n|---|---:|---:|---:|---:|")
    for name in options.models:
        runs = [seconds(name) for _ in range(max(1, options.repeat))]
        wrong = next((run for run in runs if isinstance(run, str)), None)
        if wrong:
            print(f"| {name} | – | – | – | {wrong} |")
            failed = True
            continue
        imports, loads, busy = zip(*runs, strict=True)
        failed |= statistics.median(loads) > LIMIT
        shown = (statistics.median(imports), statistics.median(loads), max(loads), statistics.median(busy))
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in shown) + " |")
    print(f"\nlimit of the median load: {LIMIT:.0f} s{', missed' if failed else ', kept'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
