"""Ask a policy where the pending jobs of a Slurm cluster should go; nothing is started.

    squeue --json > squeue.json; scontrol show nodes --json > nodes.json
    python slurm.py squeue.json nodes.json --speeds gpu-speeds.csv --policy gpu-cluster

What Slurm does not know, how long a job takes on which type of GPU, comes from the speeds table
(docs/profile.md measures one) and the job's comment: sbatch --comment "model=resnet steps=9000".
Jobs without that are left to Slurm. The files here are made up, with the fields of Slurm 23.11.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from hetsched.executor.advice import Occupied, advise
from hetsched.executor.commands.common import chosen_policy
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, QueueError
from hetsched.executor.queue_file import read_job

AWAY = {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "MAINT", "NOT_RESPONDING", "RESERVED"}


def machines_of(nodes: list[dict[str, Any]]) -> tuple[Machine, ...]:
    """A machine per node with GPUs that gets work, of as many units as it has GPUs."""
    found = []
    for node in nodes:
        gpus = re.match(r"gpu:(\w+):(\d+)", node["gres"])
        if gpus and not AWAY & set(node["state"]):
            devices = tuple(map(str, range(int(gpus[2]))))
            found.append(Machine(node["name"], gpus[1], "gpu", devices, len(devices)))
    return tuple(found)


def job_of(
    job: dict[str, Any], machines: tuple[Machine, ...], speeds: Path, first: float
) -> Job | str:
    """A job of the policy's, or why it cannot be one; times in seconds since `first`."""
    told = dict(re.findall(r"(model|steps)=(\S+)", job["comment"]))
    if len(told) < 2:
        return "its comment does not say model=... steps=..."
    if "node=1," not in job["tres_req_str"] + ",":
        return "it asks for several nodes"
    entry = {
        "name": str(job["job_id"]),
        "model": told["model"],
        "steps": float(told["steps"]),
        "gpus": gpus_of(job),
        "release": max(0.0, job["submit_time"]["number"] - first),
        "command": "true",  # Slurm starts it
    }
    try:
        return read_job(entry, machines, speeds.name, speeds.parent)
    except QueueError as error:
        return str(error)


def gpus_of(job: dict[str, Any]) -> int:
    """How many GPUs it asks for."""
    asked = re.search(r"gres/gpu=(\d+)", job["tres_req_str"])
    return int(asked[1]) if asked else 0


def hosts(nodes: str) -> list[str]:
    """The names behind Slurm's gpu[01-03,07],big1."""
    found = []
    for stem, ranges in re.findall(r"([^,\[]+)(?:\[([^\]]+)\])?", nodes):
        for one in ranges.split(","):
            first, _, last = one.partition("-")
            numbers = range(int(first), int(last) + 1) if last else ()
            found += [f"{stem}{at:0{len(first)}}" for at in numbers] or [stem + first]
    return found


def main() -> None:
    """Print a line per pending job that should start now, and why others are left alone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("squeue", type=Path)
    parser.add_argument("nodes", type=Path)
    parser.add_argument("--speeds", type=Path, required=True)
    parser.add_argument("--policy", default="gpu-cluster")
    options = parser.parse_args()
    snapshot = json.loads(options.squeue.read_text())
    machines = machines_of(json.loads(options.nodes.read_text())["nodes"])
    jobs = {str(job["job_id"]): job for job in snapshot["jobs"]}
    first = min(job["submit_time"]["number"] for job in jobs.values())
    now = snapshot["last_update"]["number"] - first
    waiting, occupied = [], []
    for job in jobs.values():
        one = job_of(job, machines, options.speeds, first)
        if "RUNNING" in job["job_state"] and gpus_of(job):
            ran = now - (job["start_time"]["number"] - first)
            left = 60.0 * job["time_limit"]["number"] - ran
            for mode in () if isinstance(one, str) else one.modes:
                if mode.machine == job["nodes"]:  # better known than its limit
                    left = mode.seconds - ran
            nodes = hosts(job["nodes"])
            occupied += [Occupied(node, gpus_of(job) // len(nodes) or 1, left) for node in nodes]
        elif "PENDING" in job["job_state"]:
            if isinstance(one, str):
                print(f"# {job['job_id']} {job['name']} is left to Slurm: {one}")
            else:
                waiting.append(one)
    policy = chosen_policy(options.policy)
    for place in advise(policy, machines, waiting, occupied, now=now):
        name, minutes = jobs[place.job]["name"], place.seconds / 60
        print(f"scontrol update JobId={place.job} ReqNodeList={place.machine}", end="")
        print(f"  # {name}: GPUs: {place.units}, about {minutes:.0f} min")


if __name__ == "__main__":
    main()
