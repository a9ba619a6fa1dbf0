"""What to say of a finished run: a table, JSON, and a Gantt picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.envs.instance import Instance
from hetsched.envs.schedule import Schedule

if TYPE_CHECKING:
    from rich.console import Console

    from hetsched.envs.checks import FloatArray
    from hetsched.executor.adapter import Run
    from hetsched.executor.protocol import Outcome

FORMAT = 1
NOT_RUN = "not run"
COLOURS = {"done": "green", "planned": "green", "cancelled": "yellow", NOT_RUN: "yellow"}
MOST_ROWS = 200  # of a table on the terminal; JSON has all
SHORTEST = 1e-6  # what could not be started took no time, which no schedule can show


def as_dict(run: Run, executor: str) -> dict[str, Any]:
    """The report as plain data for JSON (times in seconds from the start of the queue).

    Args:
        run: the finished run.
        executor: name of the kind of executor that ran it.
    """
    attempts: dict[str, list[Outcome]] = {job.name: [] for job in run.queue.jobs}
    busy = dict.fromkeys((machine.name for machine in run.queue.machines), 0.0)
    for outcome in run.outcomes:
        attempts[outcome.attempt.job].append(outcome)
        busy[outcome.attempt.machine] += outcome.seconds * outcome.attempt.demand
    jobs = []
    for job in run.queue.jobs:
        last = attempts[job.name][-1] if attempts[job.name] else None
        status, reason = NOT_RUN, run.not_run.get(job.name, "")
        if last is not None:
            status, reason = run.verdicts.get(job.name, (last.status, last.reason))
        jobs.append(
            {
                "job": job.name,
                "status": status,
                "reason": reason,
                "machine": None if last is None else last.attempt.machine,
                "started": None if last is None else last.started,
                "ended": None if last is None else last.ended,
                "release": job.release,
                "attempts": [_attempt(outcome) for outcome in attempts[job.name]],
            }
        )
    milliseconds = [1000 * seconds for seconds in run.decisions]
    return {
        "format": FORMAT,
        "policy": run.policy,
        "executor": executor,
        "objective": run.queue.objective,
        "began": run.began.isoformat(),
        "interrupted": run.interrupted,
        "totals": _totals(run),
        "machines": [
            {
                "machine": machine.name,
                "type": machine.type,
                "kind": machine.kind,
                "capacity": machine.capacity,
                "busy_unit_seconds": busy[machine.name],
                "utilisation": busy[machine.name] / (machine.capacity * run.ended)
                if run.ended > 0
                else 0.0,
            }
            for machine in run.queue.machines
        ],
        "jobs": jobs,
        "decisions": {
            "count": len(milliseconds),
            "mean_ms": float(np.mean(milliseconds)) if milliseconds else 0.0,
            "max_ms": max(milliseconds, default=0.0),
        },
        "notes": list(run.notes),
    }


def _attempt(outcome: Outcome) -> dict[str, Any]:
    return {
        "number": outcome.attempt.number,
        "machine": outcome.attempt.machine,
        "demand": outcome.attempt.demand,
        "status": outcome.status,
        "started": outcome.started,
        "ended": outcome.ended,
        "seconds": outcome.seconds,
        "expected_seconds": outcome.attempt.expected,
        "exit_code": outcome.exit_code,
        "reason": outcome.reason,
        "log": outcome.log,
    }


def _totals(run: Run) -> dict[str, Any]:
    """Counts, and the objective's terms over the jobs that are done."""
    last = run.last
    done = [
        (job, last[job.name])
        for job in run.queue.jobs
        if job.name in last and last[job.name].status == "done"
    ]
    late = [job.weight * max(0.0, end.ended - job.due) for job, end in done if job.due < math.inf]
    return {
        "jobs": len(run.queue.jobs),
        "done": len(done),
        "attempts": len(run.outcomes),
        "makespan": max((outcome.ended for outcome in run.outcomes), default=0.0),
        "mean_flow_time": float(np.mean([end.ended - job.release for job, end in done]))
        if done
        else None,
        "weighted_completion": sum(job.weight * end.ended for job, end in done),
        "weighted_tardiness": sum(late),
    }


def print_report(run: Run, executor: str, console: Console, planned: bool = False) -> None:
    """The report as a table, one row per attempt and per job that never ran.

    Of a long queue only what went wrong, and no more of it than somebody can read.

    Args:
        run, executor: as for `as_dict`.
        console: where it goes.
        planned: nothing has really run; say so.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    report = as_dict(run, executor)
    done = "planned" if planned else "done"
    rows: list[tuple[str, ...]] = []
    for job in report["jobs"]:
        for one in job["attempts"]:
            again = f" (attempt {one['number']})" if one["number"] > 1 else ""
            times = [one[key] for key in ("started", "ended", "seconds", "expected_seconds")]
            status = done if one["status"] == "done" else one["status"]
            place = (escape(job["job"] + again), escape(one["machine"]))
            rows.append((*place, *map(duration, times), _coloured(status), escape(one["reason"])))
        if not job["attempts"] or job["job"] in run.verdicts:
            why = (_coloured(job["status"]), escape(job["reason"]))
            rows.append((escape(job["job"]), *["-"] * 5, *why))
    left_out = 0
    if len(rows) > MOST_ROWS:
        wrong = [row for row in rows if row[-2] != _coloured(done)]
        left_out = len(rows) - len(wrong[:MOST_ROWS])
        rows = wrong[:MOST_ROWS]
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("job", overflow="fold")
    table.add_column("machine", overflow="fold")
    for column in ("start", "end", "took", "expected"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    if any(row[-1] for row in rows):
        table.add_column("reason", overflow="fold")
    else:
        rows = [row[:-1] for row in rows]
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if left_out:
        console.print(f"Not shown: {left_out} more attempts and jobs; status and --json have all.")
    totals, decisions = report["totals"], report["decisions"]
    flow = totals["mean_flow_time"]
    used = ", ".join(f"{one['machine']} {one['utilisation']:.0%}" for one in report["machines"])
    for line in (
        f"{totals['done']} of {totals['jobs']} jobs {done}; makespan "
        f"{duration(totals['makespan'])}, mean flow time {duration(flow)}.",
        f"Policy {run.policy}: {decisions['count']} decisions, {decisions['mean_ms']:.1f} ms each, "
        f"at most {decisions['max_ms']:.1f} ms.",
        f"Machines in use: {used}.",
    ):
        console.print(line, highlight=False, markup=False)
    for note in run.notes:
        console.print(f"Warning: {note}.", highlight=False, markup=False, style="red")


def _coloured(status: str) -> str:
    colour = COLOURS.get(status, "red")
    return f"[{colour}]{status}[/{colour}]"


def duration(seconds: float | None) -> str:
    """Seconds for people: 0.42 s, 12.3 s, 4:05, 1:02:03."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def as_schedule(run: Run) -> tuple[Schedule, Instance]:
    """The run as a schedule in which every attempt is a job of its own, for drawing.

    Raises:
        ValueError: nothing has run.
    """
    if not run.outcomes:
        raise ValueError("gantt: nothing has run, so there is nothing to draw.")
    machine_at = {machine.name: at for at, machine in enumerate(run.queue.machines)}
    jobs = {job.name: job for job in run.queue.jobs}
    seconds = np.array([max(outcome.seconds, SHORTEST) for outcome in run.outcomes])
    starts = np.array([outcome.started for outcome in run.outcomes])
    count = len(run.outcomes)
    instance = Instance(
        num_jobs=count,
        num_machines=len(machine_at),
        mode_jobs=np.arange(count),
        mode_machines=np.array([machine_at[one.attempt.machine] for one in run.outcomes]),
        processing_times=seconds,
        demand=np.array([one.attempt.demand for one in run.outcomes]),
        capacity=np.array([machine.capacity for machine in run.queue.machines]),
        due_times=np.array([jobs[one.attempt.job].due for one in run.outcomes]),
        weights=np.array([jobs[one.attempt.job].weight for one in run.outcomes]),
        job_names=tuple(_label(one) for one in run.outcomes),
        machine_names=tuple(machine_at),
    )
    return Schedule(modes=np.arange(count), starts=starts, ends=starts + seconds), instance


def _label(outcome: Outcome) -> str:
    number = outcome.attempt.number
    name = outcome.attempt.job + (f" (attempt {number})" if number > 1 else "")
    return name if outcome.status == "done" else f"{name}: {outcome.status}"


def planned_ends(run: Run) -> FloatArray:
    """(attempts,) when each should have ended, as estimated when it was decided.

    nan for those that were not done: how long a failure should have taken says nothing.
    """
    return np.array(
        [
            one.started + one.attempt.expected
            if one.status == "done" and one.attempt.expected
            else math.nan
            for one in run.outcomes
        ]
    )


def draw(run: Run, path: str | Path) -> None:
    """A Gantt picture of plan and reality: ``.png``, or ``.html`` that one can hover over.

    Raises:
        ValueError: another suffix, or nothing has run.
        OSError: the file cannot be written.
    """
    from hetsched.envs import gantt

    path = Path(path)
    check_gantt_path(path)
    schedule, instance = as_schedule(run)
    title = f"{run.policy}, {run.began:%Y-%m-%d %H:%M}"
    drawing = gantt.draw_html if path.suffix == ".html" else gantt.draw_png
    drawing(schedule, instance, path, title=title, planned=planned_ends(run))


def check_gantt_path(path: str | Path) -> None:
    """Refuse a picture's path before anything runs.

    Raises:
        ValueError: the suffix is neither ``.png`` nor ``.html``.
    """
    if Path(path).suffix not in (".png", ".html"):
        raise ValueError(f"gantt: {str(path)!r} must end in .png or .html.")
