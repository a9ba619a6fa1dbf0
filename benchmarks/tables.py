"""Rebuild the measured tables that the gpu-cluster scenarios read, from the published sources.

    python benchmarks/tables.py --data ../shared/data [--check]

``speeds.csv``: measured speeds, one row per (model, GPU, gang size, source), from Gavel's
isolated throughputs and MLPerf result logs.  ``philly.csv``: quantiles of the durations and of
the gaps between arrivals in the Philly trace.  With ``--check`` nothing is written; the exit
status is 1 where a table differs from what the sources give.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TABLES = Path(__file__).resolve().parent.parent / "envs" / "scenarios" / "data"

GAVEL = "gavel: scheduler/simulation_throughputs.json, commit c4fa400, MIT"
MLPERF = "{round}: MLCommons result logs, commit {commit}, Apache-2.0, not verified by MLCommons"
ROUNDS = {  # our name of the round -> (round and commit of the results repository)
    "mlperf-inference-v4.1": ("v4.1", "198fc467"),
    "mlperf-inference-v3.0": ("v3.0", "1948f9b5"),
    "mlperf-training-v3.1": ("v3.1", "d06288b2"),
}
ACCELERATORS = {  # the logs' spelling -> ours; the rest is left out
    "NVIDIA H200-SXM-141GB": "H200-SXM",
    "NVIDIA H100-SXM-80GB": "H100-SXM",
    "NVIDIA H100-SXM5-80GB": "H100-SXM",
    "NVIDIA H100-PCIe-80GB": "H100-PCIe",
    "NVIDIA A100-SXM-80GB": "A100-SXM",
    "NVIDIA A100-PCIe-80GB": "A100-PCIe",
    "NVIDIA L40S": "L40S",
    "NVIDIA L40": "L40",
    "NVIDIA L4": "L4",
    "NVIDIA A40": "A40",
    "NVIDIA A30": "A30",
    "NVIDIA A2": "A2",
}
INFERENCE = {  # the logs' benchmark -> our name; high-accuracy twins with equal figures left out
    "3d-unet-99": "3D-UNet",
    "bert-99": "BERT (99 %)",
    "bert-99.9": "BERT (99.9 %)",
    "dlrm-99": "DLRM",
    "dlrm-v2-99": "DLRM v2 (99 %)",
    "dlrm-v2-99.9": "DLRM v2 (99.9 %)",
    "gptj-99": "GPT-J",
    "llama2-70b-99": "Llama 2 70B",
    "mixtral-8x7b": "Mixtral 8x7B",
    "resnet50": "ResNet-50",
    "retinanet": "RetinaNet",
    "rnnt": "RNN-T",
    "stable-diffusion-xl": "SDXL",
}
TRAINING = {
    "bert": "BERT training",
    "dlrm_dcnv2": "DLRM training",
    "maskrcnn": "Mask R-CNN training",
    "resnet": "ResNet-50 training",
    "ssd": "RetinaNet training",
    "unet3d": "3D-UNet training",
    "rnnt": "RNN-T training",
}
SpeedRow = tuple[str, str, int, str, str, str]


def gavel_rows(data: Path) -> Iterator[SpeedRow]:
    """Steps/s alone on consolidated GPUs; a zero means "does not fit" and gives no row."""
    with (data / "gavel/throughputs/isolated_throughput_matrix.csv").open() as lines:
        for row in csv.DictReader(lines):
            model = row["job_type"].replace("batch size", "batch")
            for gpu in ("v100", "p100", "k80"):
                speed = float(row[gpu])
                if speed > 0:
                    gang = int(row["scale_factor"])
                    yield model, gpu.upper(), gang, f"{speed:.6g}", "steps/s", GAVEL


def inference_rows(data: Path, name: str) -> Iterator[SpeedRow]:
    """Best valid offline throughput of the round per accelerator (total / accelerators)."""
    best: dict[tuple[str, str], float] = {}
    with (data / "mlperf/inference_offline_throughput.csv").open() as lines:
        for row in csv.DictReader(lines):
            known = row["benchmark"] in INFERENCE and row["accelerator"] in ACCELERATORS
            ours = row["round"] == ROUNDS[name][0] and row["valid"] == "VALID"
            if known and ours and row["samples_per_s_per_accel"]:
                key = INFERENCE[row["benchmark"]], ACCELERATORS[row["accelerator"]]
                best[key] = max(best.get(key, 0.0), float(row["samples_per_s_per_accel"]))
    source = MLPERF.format(round=name, commit=ROUNDS[name][1])
    for (model, gpu), speed in best.items():
        yield model, gpu, 1, f"{speed:.6g}", "samples/s", source


def training_rows(data: Path, name: str) -> Iterator[SpeedRow]:
    """Training runs per hour of a node of eight, from the best olympic mean time to train."""
    best: dict[tuple[str, str], float] = {}
    with (data / "mlperf/training_time_to_train.csv").open() as lines:
        for row in csv.DictReader(lines):
            known = row["benchmark"] in TRAINING and row["accelerator"] in ACCELERATORS
            ours = row["round"] == ROUNDS[name][0] and row["division"] == "closed"
            if known and ours and row["total_accel"] == "8" and row["olympic_mean_minutes"]:
                key = TRAINING[row["benchmark"]], ACCELERATORS[row["accelerator"]]
                best[key] = min(best.get(key, np.inf), float(row["olympic_mean_minutes"]))
    source = MLPERF.format(round=name, commit=ROUNDS[name][1])
    for (model, gpu), minutes in best.items():
        yield model, gpu, 8, f"{60 / minutes:.6g}", "runs/h", source


def speeds(data: Path) -> str:
    rows = [
        *gavel_rows(data),
        *inference_rows(data, "mlperf-inference-v4.1"),
        *inference_rows(data, "mlperf-inference-v3.0"),
        *training_rows(data, "mlperf-training-v3.1"),
    ]
    rows.sort(key=lambda row: (row[5], row[0], row[2], row[1]))
    return table(("model", "gpu", "gpus", "speed", "unit", "source"), rows)


def philly(data: Path) -> str:
    """Quantiles of durations (s) by gang size, of gaps between arrivals, and gang sizes' shares.

    Gaps are between one-GPU jobs of the same virtual cluster, those above eight hours (nights,
    weekends, holes in the log) left out, over the virtual cluster's mean gap; every virtual
    cluster with 500 gaps counts the same.
    """
    with (data / "philly/philly.csv").open() as lines:
        jobs = list(csv.DictReader(lines))
    gang = np.array([int(job["num_gpus"]) for job in jobs])
    duration = np.array([float(job["duration"]) for job in jobs])
    # Only differences matter, and the trace's times carry no zone: no zone is assumed.
    epoch = datetime(2017, 1, 1)
    arrival = np.array(
        [(datetime.fromisoformat(job["timestamp"]) - epoch).total_seconds() for job in jobs]
    )
    cluster = np.array([job["cluster"] for job in jobs])
    probability = np.concatenate([np.arange(100) / 100, [0.995, 0.999, 1.0]])
    rows: list[tuple[str, int, str, str]] = []
    sizes = (1, 2, 4, 8)
    for size in sizes:
        share = (gang == size).sum() / np.isin(gang, sizes).sum()
        rows.append(("share", size, "", f"{share:.5f}"))
    for size in sizes:
        values = np.quantile(duration[gang == size], probability)
        rows += quantile_rows("duration_s", size, probability, values)
    gaps, weights = [], []
    for name in np.unique(cluster):
        gap = np.diff(np.sort(arrival[(cluster == name) & (gang == 1)]))
        gap = gap[gap <= 8 * 3600]
        if len(gap) >= 500:
            gaps.append(gap / gap.mean())
            weights.append(np.full(len(gap), 1 / len(gap)))
    pooled, weight = np.concatenate(gaps), np.concatenate(weights)
    order = np.argsort(pooled, kind="stable")
    reached = np.cumsum(weight[order]) / weight.sum()
    values = np.interp(probability, reached, pooled[order])
    rows += quantile_rows("gap", 1, probability, values)
    return table(("quantity", "gpus", "probability", "value"), rows)


def quantile_rows(
    quantity: str, gpus: int, probability: np.ndarray, values: np.ndarray
) -> list[tuple[str, int, str, str]]:
    pairs = zip(probability.tolist(), values.tolist(), strict=True)
    return [(quantity, gpus, f"{p:g}", f"{value:.6g}") for p, value in pairs]


def table(header: tuple[str, ...], rows: Sequence[tuple[str | int, ...]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sources")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(arguments)
    status = 0
    for name, build in (("speeds.csv", speeds), ("philly.csv", philly)):
        try:
            text = build(options.data)
        except FileNotFoundError as error:
            print(f"{error.filename} is missing: point --data at the sources", file=sys.stderr)
            return 2
        path = TABLES / name
        if not options.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path} differs from its sources", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
