"""The policies that ship with hetsched against every rule; see ``benchmarks/README.md``.

    python benchmarks/shipped.py --data ../shared/data
    python benchmarks/shipped.py --only gpu-cluster

Every table is one call of ``evaluate.py``, printed before it runs; per-instance results are kept as
``benchmarks/results/NAME.json`` in the form that ``docs/evaluate.md`` describes.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from hetsched.benchmarks.quality_sets import BENCHES

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
# of `quality_sets`, with how many samples of the policy
SETS = {
    **{f"hitzges-{size}": 64 for size in ("8x4", "20x4", "50x6", "100x10")},
    **{f"upmsp-{size}": 1 for size in ("20x5", "50x10", "100x15")},
    **{f"fjsp-SD{number}-10x5": 32 for number in (1, 2)},
    "rcmax-100x20": 32,
}
SEED = 3_000_017  # neither of training, nor of validation, nor of the table after training
RULES = "allox,ect-wait,atc,min-min,max-min,sufferage,spt,lpt,edd,wspt,ect,fifo,heft,random"


def tables(data: Path | None, count: int) -> dict[str, list[str]]:
    """Name -> arguments of ``evaluate.py``."""
    found: dict[str, list[str]] = {}
    if data is not None:
        for bench in BENCHES:
            if bench.name not in SETS or bench.path is None:
                continue
            samples = SETS[bench.name]
            found[bench.name] = [
                *("--scenario", bench.scenario, "--file", str(data / bench.path)),
                *("--policy", bench.scenario, "--against", ",".join(bench.rules + bench.grids)),
                *(("--samples", str(samples)) if samples > 1 else ()),
            ]
    for name in ("gpu-cluster", "gpu-cluster-noisy", "gpu-cluster-single", "gpu-cluster-offline"):
        found[name] = [
            *("--scenario", name, "--count", str(count), "--seed", str(SEED)),
            *("--policy", name, "--against", RULES),
        ]
    return found


def main() -> None:
    """Run the tables that are asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder of the benchmark sets (else: skipped)")
    parser.add_argument("--count", type=int, default=800, help="instances of each gpu-cluster")
    parser.add_argument("--only", metavar="NAME", help="tables whose name starts so")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for name, arguments in tables(options.data, options.count).items():
        if options.only and not name.startswith(options.only):
            continue
        command = ["evaluate.py", *arguments, "--threads", "1"]
        print(f"\n$ python {shlex.join(command)}", flush=True)
        command += ["--json", str(RESULTS / f"{name}.json")]
        subprocess.run([sys.executable, str(ROOT / command[0]), *command[1:]], check=True)


if __name__ == "__main__":
    main()
