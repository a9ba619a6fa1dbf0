"""Jobs and machines as lines of JSON, for files that outlive a process."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Job, Mode


def _changed(thing: Any) -> dict[str, Any]:
    """The fields of a data class that are not at their default."""
    said = {}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if field.default_factory is not dataclasses.MISSING:
            default: Any = field.default_factory()
        else:
            default = field.default
        if value != default:
            said[field.name] = value
    return said


def job_to_json(job: Job) -> str:
    """A job as one line of JSON."""
    said = _changed(job)
    said["modes"] = [[mode.machine, mode.seconds, mode.demand] for mode in job.modes]
    if "env" in said:
        said["env"] = dict(job.env)
    return json.dumps(said, separators=(",", ":"), allow_nan=False)


def job_from_json(text: str) -> Job:
    """What `job_to_json` wrote."""
    said = json.loads(text)
    said["modes"] = tuple(Mode(*mode) for mode in said["modes"])
    if isinstance(said.get("command"), list):
        said["command"] = tuple(said["command"])
    if "after" in said:
        said["after"] = tuple(said["after"])
    return Job(**said)


def machine_to_json(machine: Machine) -> str:
    """A machine as one line of JSON."""
    return json.dumps(_changed(machine), separators=(",", ":"), allow_nan=False)


def machine_from_json(text: str) -> Machine:
    """What `machine_to_json` wrote."""
    said = json.loads(text)
    said["devices"] = tuple(said.get("devices", ()))
    return Machine(**said)
