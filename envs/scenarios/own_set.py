"""One's own jobs, unchanged, as a file for ``evaluate.py --file``.

    python -m hetsched.envs.scenarios.own_set --speeds speeds.csv --jobs jobs.csv \\
        --machines "v100*2+k80*4" --out own.npz

writes a set of one instance; with ``.json``, an instance, the only format that holds models
measured on several numbers of GPUs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the result is the exit status."""
    parser = argparse.ArgumentParser(description="Turn one's own files into an instance set.")
    parser.add_argument("--speeds", required=True, help="CSV: model,machine,speed[,gpus]")
    parser.add_argument("--jobs", required=True, help="CSV: name,model,work[,arrival,due,...]")
    parser.add_argument("--machines", required=True, help="TYPE*COUNT+..., or a CSV file")
    parser.add_argument("--out", required=True, type=Path, help="set (.npz) or instance (.json)")
    options = parser.parse_args(arguments)
    from hetsched.envs.files import InstanceSet, save_instance, save_set
    from hetsched.envs.scenarios.own import own_instance

    try:
        instance = own_instance(options.speeds, options.jobs, options.machines)
        if options.out.suffix == ".json":
            save_instance(options.out, instance)
        else:
            save_set(options.out, InstanceSet((instance,), name="own"))
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{options.out}: {instance.num_jobs} jobs, {instance.num_machines} machines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
