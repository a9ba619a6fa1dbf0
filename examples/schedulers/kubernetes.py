"""Ask a policy which node each pending pod of a Kubernetes cluster should get; nothing is bound.

    kubectl get nodes,pods -A -o json > cluster.json
    python kubernetes.py cluster.json --speeds gpu-speeds.csv --policy gpu-cluster

What Kubernetes does not know, how long a pod works on which type of GPU, comes from the speeds
table (docs/profile.md measures one) and the pod's annotations hetsched/model and hetsched/steps.
Pods without them are left to the default scheduler. The snapshot here is made up.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from typing import Any

from hetsched.executor.advice import Occupied, advise
from hetsched.executor.commands.common import chosen_policy
from hetsched.executor.protocol import Machine
from hetsched.executor.queue import QueueError
from hetsched.executor.queue_file import read_job

GPU, PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.product"


def machines_of(nodes: list[dict[str, Any]]) -> tuple[Machine, ...]:
    """A machine per node with GPUs that gets work; NVIDIA-L40S is the type l40s."""
    found = []
    for node in nodes:
        count = int(node["status"]["allocatable"].get(GPU, 0))
        if count and not node["spec"].get("unschedulable"):
            kind = node["metadata"]["labels"][PRODUCT].lower().removeprefix("nvidia-")
            devices = tuple(map(str, range(count)))
            found.append(Machine(node["metadata"]["name"], kind, "gpu", devices, count))
    return tuple(found)


def gpus_of(pod: dict[str, Any]) -> int:
    """How many GPUs its containers have together."""
    limits = [one.get("resources", {}).get("limits", {}) for one in pod["spec"]["containers"]]
    return sum(int(limit.get(GPU, 0)) for limit in limits)


def name_of(pod: dict[str, Any]) -> str:
    """Namespace and name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def seconds(text: str) -> float:
    """A time of Kubernetes on the wall clock."""
    return datetime.datetime.fromisoformat(text).timestamp()


def main() -> None:
    """Print a line per pending pod that should start now, and why others are left alone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cluster", type=Path)
    parser.add_argument("--speeds", type=Path, required=True)
    parser.add_argument("--policy", default="gpu-cluster")
    parser.add_argument("--now", help="when the snapshot was taken (default: now)")
    options = parser.parse_args()
    items = json.loads(options.cluster.read_text())["items"]
    machines = machines_of([one for one in items if one["kind"] == "Node"])
    pods = [one for one in items if one["kind"] == "Pod" and gpus_of(one)]
    at = seconds(options.now) if options.now else datetime.datetime.now().timestamp()
    first = min([at, *(seconds(pod["metadata"]["creationTimestamp"]) for pod in pods)])
    waiting, occupied = [], []
    for pod in pods:
        notes = pod["metadata"].get("annotations", {})
        entry = {
            "name": name_of(pod),
            "gpus": gpus_of(pod),
            "release": seconds(pod["metadata"]["creationTimestamp"]) - first,
            "command": "true",  # its containers know
        }
        if "hetsched/model" in notes:
            steps = float(notes.get("hetsched/steps", "nan"))
            entry |= {"model": notes["hetsched/model"], "steps": steps}
        try:
            job = read_job(entry, machines, options.speeds.name, options.speeds.parent)
        except QueueError as error:
            job = None
            if pod["status"]["phase"] == "Pending":
                print(f"# {name_of(pod)} is left to the default scheduler: {error}")
        if pod["status"]["phase"] == "Running":
            node, left = pod["spec"]["nodeName"], 0.0
            for mode in job.modes if job else ():
                if mode.machine == node:
                    left = mode.seconds - (at - seconds(pod["status"]["startTime"]))
            occupied.append(Occupied(node, gpus_of(pod), left))
        elif pod["status"]["phase"] == "Pending" and job and "nodeName" not in pod["spec"]:
            waiting.append(job)
    policy = chosen_policy(options.policy)
    for place in advise(policy, machines, waiting, occupied, now=at - first):
        minutes = place.seconds / 60
        print(f"{place.job} -> {place.machine}  (GPUs: {place.units}, about {minutes:.0f} min)")


if __name__ == "__main__":
    main()
