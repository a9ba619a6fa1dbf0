"""A queue's file and the state of the same queue: what of the file is news."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.executor import store
from hetsched.executor.exits import Exits
from hetsched.executor.queue import QueueError

if TYPE_CHECKING:
    from hetsched.executor.protocol import Machine
    from hetsched.executor.queue import Job, Queue
    from hetsched.executor.store_ledger import Remembered, StoreLedger


@dataclass(frozen=True)
class Merged:
    """What became of it.

    Attributes:
        added: jobs that are new.
        kept: jobs that stay as the state has them though the file says something else.
        stranded: jobs that have no machine any more.
        forgot: the file gives other durations for the same work, so that what was learned of the
            old ones is not true of them, and is not used any more.
    """

    added: int
    kept: tuple[str, ...]
    stranded: tuple[str, ...]
    forgot: bool = False


def merge(ledger: StoreLedger, queue: Queue) -> Merged:
    """Take over machines, objective, grace, new jobs, and jobs that have never been started.

    Raises:
        QueueError: a machine on which a job still runs is missing or differs.
    """
    remembered = ledger.load()
    _refuse_lost_machines(ledger, queue.machines, remembered)
    known = {one.job.name: one for one in remembered}
    added, kept, replaced, estimated_anew = [], [], set(), False
    for job in queue.jobs:
        one = known.get(job.name)
        if one is None:
            added.append(job)
        elif one.job != job:
            if one.status == "waiting" and not one.outcomes:
                ledger.changed(job)
                replaced.add(job.name)
                estimated_anew |= _has_other_durations(job, one.job)
            else:
                kept.append(job.name)
    names = {machine.name for machine in queue.machines}
    stranded = []
    for one in remembered:
        if one.status not in store.OPEN_STATUSES or one.job.name in replaced:
            continue
        modes = tuple(mode for mode in one.job.modes if mode.machine in names)
        if not modes:
            stranded.append(one.job.name)
            ledger.fate(one.job.name, "not run", "none of its machines is there any more")
        elif len(modes) < len(one.job.modes) and one.running is None and not one.outcomes:
            ledger.changed(replace(one.job, modes=modes))
        elif len(modes) < len(one.job.modes):
            raise QueueError(
                f"job {one.job.name!r} has been tried on machines that are not listed any more; "
                "list them again, or begin anew with --fresh."
            )
    latest = max((end.ended for one in remembered for end in one.outcomes), default=None)
    forgot = estimated_anew and latest is not None
    if forgot:
        ledger.set(learn_after=repr(latest))
    ledger.set(objective=queue.objective, grace=repr(queue.grace))
    ledger.replace_machines(queue.machines)
    ledger.commit()
    ledger.add(tuple(added))
    return Merged(len(added), tuple(kept), tuple(stranded), forgot)


def _has_other_durations(job: Job, before: Job) -> bool:
    """Whether the same work is said to take another time somewhere."""
    said = {(mode.machine, mode.demand): mode.seconds for mode in before.modes}
    return job.steps == before.steps and any(
        said.get((mode.machine, mode.demand), mode.seconds) != mode.seconds for mode in job.modes
    )


def _refuse_lost_machines(
    ledger: StoreLedger, machines: tuple[Machine, ...], remembered: list[Remembered]
) -> None:
    before = {machine.name: machine for machine in ledger.machines}
    after = {machine.name: machine for machine in machines}
    for one in remembered:
        if one.running is not None:
            name = one.running[0].machine
            if before.get(name) != after.get(name):
                raise QueueError(
                    f"machine {name!r} is missing or has changed while job {one.job.name!r} may "
                    "run on it; list it as it was until that job is over."
                )


def set_aside(folder: Path) -> Path:
    """Rename a state that nobody uses, by the time at which it began; returns its new place.

    Raises:
        StoreError: a scheduler uses it, or jobs of it still run.
    """
    lock = store.Lock(folder)
    try:
        file = store.connect(folder)
        meta = store.read_meta(file)
        file.close()
        if Exits(folder / store.EXITS, meta["identity"]).marked():
            raise store.StoreError(
                f"jobs of {folder} still run though their scheduler was killed; go on with that "
                "queue, or cancel them there first."
            )
        when = time.strftime("%Y%m%d-%H%M%S", time.localtime(float(meta["began"])))
        place = folder.with_name(f"{folder.name}.{when}")
        number = 1
        while place.exists():
            number += 1
            place = folder.with_name(f"{folder.name}.{when}-{number}")
        return folder.rename(place)
    finally:
        lock.release()
