"""What only a GPU can show: discovery, profiling, memory, kills and sharing.

    python benchmarks/gpu.py [--json benchmarks/results/gpu.json]      on a computer with a GPU
    python benchmarks/gpu.py --cpu                                     the parts that need none

It takes at most `--minutes` (8); a check that does not fit any more is not begun and counts as not
passed. Exit status: 0 all passed, 1 some not, 2 no GPU. The jobs are in benchmarks/gpu_job.py; they
need torch with CUDA. This process never touches CUDA itself, and checks that it has not.

On a GPU this script has not been run yet; only its parts without one have (`--cpu`, by a test).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli import UserError, run

if TYPE_CHECKING:
    from hetsched.executor.discovery import Device
    from hetsched.executor.protocol import Outcome

JOB = Path(__file__).with_name("gpu_job.py")
GIB = 2**30
HELD = 8.0  # GiB that the killed job holds, less on a small GPU
WANTED = 4.0  # GiB of the job that does not fit the small machine, likewise; 0.5 on the CPU
START_SECONDS = 120.0  # until a job has imported torch and made its context, at worst
RETURN_SECONDS = 10.0  # until the driver has the memory of a killed process back
SLACK = GIB // 8  # of memory in use, for what others do meanwhile


@dataclass(frozen=True)
class Check:
    """One line of the result; `passed` None: it was not begun."""

    name: str
    passed: bool | None
    detail: str
    seconds: float = 0.0


class Failed(Exception):
    """A check that did not pass; one sentence."""


def expect(condition: bool, sentence: str) -> None:
    if not condition:
        raise Failed(sentence)


class Bench:
    """The checks, on a device or without one.

    Args:
        device: None: on the CPU.
        folder: for the jobs' output.
        end: on the monotonic clock, for every job.
    """

    def __init__(self, device: Device | None, folder: Path, end: float) -> None:
        from hetsched.executor.protocol import Machine

        self.device, self.folder, self.end = device, folder, end
        self.type = device.type if device else "cpu"
        memory = ((device and device.memory) or 64 * GIB) / GIB
        self.held, self.wanted = min(HELD, 0.4 * memory), min(WANTED, 0.2 * memory)
        if device is None:
            self.wanted = 0.5
        self.machine = self.made("shared", 2)
        self.cpu = Machine("cpu")

    @property
    def limit(self) -> float:
        """Seconds that a job may take."""
        return min(START_SECONDS, max(1.0, self.end - time.monotonic()))

    def made(self, name: str, slots: int = 1, memory: float | None = None) -> Any:
        """A machine on the device; several share it."""
        from hetsched.executor.protocol import Machine

        if self.device is None:
            return Machine(name, capacity=slots, memory=memory)
        return Machine(name, self.type, "gpu", (self.device.uuid,), slots, memory)

    def command(self, kind: str, value: float = 0.0, on: str = "") -> tuple[str, ...]:
        on = on or ("cuda" if self.device else "cpu")
        return (sys.executable, str(JOB), kind, str(value), "--on", on)

    def executor(self, name: str, *machines: Any) -> Any:
        from hetsched.executor.local import LocalExecutor

        return contextlib.closing(LocalExecutor(machines, self.folder / name, grace=1.0))

    def together(self, name: str, *commands: tuple[str, ...], machine: Any = None) -> list[Outcome]:
        """Run commands at the same time on one machine, all to their end."""
        from hetsched.executor.protocol import Attempt

        machine = machine or self.machine
        ended: list[Outcome] = []
        with self.executor(name, machine) as executor:
            for at, command in enumerate(commands):
                executor.start(
                    Attempt(f"job {at}", machine.name, command=command, timeout=self.limit)
                )
            while len(ended) < len(commands):
                ended += executor.poll()
        return ended

    def used(self) -> int:
        """Bytes of the device in use, as the driver counts them."""
        from hetsched.executor.discovery import discover

        assert self.device is not None
        now = [one for one in discover().devices if one.uuid == self.device.uuid]
        return (now[0].used or 0) if now else 0

    def discovery(self) -> str:
        from hetsched.executor.discovery import discover

        found = discover()
        (outcome,) = self.together("look", self.command("look"))
        seen = said(outcome)
        if self.device is None:
            expect(seen["visible"] == "", "a job on a CPU machine sees a GPU")
            return f"{len(found.devices)} GPUs; a job on a CPU machine sees none"
        (hidden,) = self.together("look cpu", self.command("look", on="cuda"), machine=self.cpu)
        expect(said(hidden)["count"] == 0, "a job on a CPU machine sees a GPU")
        expect(seen["count"] == 1, f"the job sees {seen['count']} devices, not one")
        uuid = self.device.uuid.removeprefix("GPU-")
        expect(uuid in seen["uuid"] or self.device.profile != "", f"it sees {seen['uuid']}")
        total = self.device.memory or 0
        near = abs(seen["memory"] - total) < 0.05 * total
        expect(near, f"torch sees {seen['memory']} bytes, NVML {total}")
        health = self.device.health
        return (
            f"{len(found.devices)} x {self.device.product} as {self.type}, {total / GIB:.1f} GiB, "
            f"driver {found.driver}, torch {seen['torch']}, health {health.verdict} "
            f"(recovery {health.recovery}, uncorrected {health.uncorrected}, "
            f"retired {health.retired})"
        )

    def profile(self) -> str:
        from hetsched.executor.discovery_nvml import NoNvml, open_nvml
        from hetsched.executor.profiling import Settings, Subject, measure
        from hetsched.executor.profiling_clocks import ClockWatch
        from hetsched.executor.queue import Job, Mode

        long, window = (4.0, 3.0) if self.device else (2.0, 0.3)
        modes = (Mode(self.machine.name, 1.0),)
        job = Job("steps", modes, self.command("steps", 10 * window + 60))
        with contextlib.ExitStack() as stack:
            nvml = None
            with contextlib.suppress(NoNvml):
                nvml = stack.enter_context(open_nvml())
            settings = Settings(3, window / 3, window, self.limit, grace=1.0)
            subject = Subject("steps", job, 0, self.machine)
            result = measure(subject, settings, self.folder / "profile", ClockWatch(nvml))
        assert result is not None
        expect(not result.problem, f"no measurement: {result.problem}")
        (outcome,) = self.together("own", self.command("steps", long))
        own = said(outcome)["speed"]
        # Sleeps on a busy computer are no measure; there only the order of magnitude is checked.
        allowed = 1.15 if self.device else 5.0
        ratio = result.speed / own
        expect(
            1 / allowed < ratio < allowed,
            f"measured {result.speed:.1f} steps/s where the job counts {own:.1f}",
        )
        return (
            f"{result.speed:.1f} steps/s ({own:.1f} by the job's own clock), spread "
            f"{result.spread:.1%}, start-up {result.startup:.1f} s" + "; ".join(("", *result.notes))
        )

    def memory_retry(self) -> str:
        """A job that runs out of memory is run again where there is more."""
        from hetsched.agents.rules import make_rule
        from hetsched.executor.adapter import run_queue
        from hetsched.executor.queue import Job, Mode, Queue

        small = self.made("small", memory=self.wanted / 2 * GIB)
        large = self.made("large", memory=(self.device and self.device.memory) or 64.0 * GIB)
        job = Job(
            "big",
            (Mode("small", 1.0), Mode("large", 100.0)),  # a rule prefers the small one
            self.command("allocate", self.wanted),
            timeout=self.limit,
            retries=1,
        )
        queue = Queue((job,), (small, large), grace=1.0)
        with self.executor("memory", small, large) as executor:
            done = run_queue(queue, make_rule("ect"), executor)
        tried = [(one.attempt.machine, one.status) for one in done.outcomes]
        expect(tried[0] == ("small", "memory"), f"the first attempt ended as {tried[0]}")
        expect(tried[1:] == [("large", "done")], f"then it went {tried[1:]}")
        return f"out of memory on small, done on large after {done.ended:.1f} s"

    def memory_fraction(self) -> str:
        (outcome,) = self.together("fraction", self.command("fraction"))
        seen = said(outcome)
        expect(seen["refused"], f"more than {seen['limit'] / GIB:.1f} GiB were given")
        return f"an allocation above {seen['limit'] / GIB:.1f} GiB is refused"

    def kill(self) -> str:
        """SIGKILL of the whole group after its grace; the device has its memory back."""
        from hetsched.executor.protocol import Attempt

        before = self.used() if self.device else 0
        with self.executor("kill", self.machine) as executor:
            executor.start(Attempt("hold", "shared", command=self.command("hold", self.held)))
            log, end = self.folder / "kill" / "hold.1.log", executor.now() + self.limit
            while (holding := answer(log)) is None:
                ended = executor.poll(executor.now() + 0.1)
                expect(not ended and executor.now() < end, "the job did not get its memory")
            child = holding["child"]
            held = (self.used() if self.device else 0) - before
            asked = executor.now()
            executor.stop("hold")
            (outcome,) = executor.poll()
            killed = executor.now()
        expect(outcome.status == "cancelled", f"it ended as {outcome.status}")
        expect(killed - asked >= 1.0, "it did not ignore SIGTERM")
        while _alive(child):  # it was killed with the job, and may take a moment longer to go
            expect(executor.now() < killed + RETURN_SECONDS, f"its child {child} is still there")
            time.sleep(0.01)
        if self.device is None:
            return f"gone {killed - asked:.2f} s after SIGTERM, its child too"
        expect(held > 0.9 * self.held * GIB, f"only {held / GIB:.1f} GiB were in use")
        begun = time.monotonic()
        while self.used() > before + SLACK:
            waited = time.monotonic() - begun
            expect(waited < RETURN_SECONDS, f"{(self.used() - before) / GIB:.1f} GiB are not back")
            time.sleep(0.05)
        back = time.monotonic() - begun
        return f"{held / GIB:.1f} GiB held; back {back:.2f} s after the kill, its child gone too"

    def sharing(self) -> str:
        command = self.command("share", 8.0 if self.device else 1.0)
        (alone,) = (said(one)["times"] for one in self.together("alone", command))
        one, two = (said(one)["times"] for one in self.together("both", command, command))
        begun, ended = max(one[0], two[0]), min(one[-1], two[-1])
        expect(ended > begun, "the two did not run at the same time")
        both = sum(begun <= at <= ended for at in one + two) / (ended - begun)
        single = (len(alone) - 1) / (alone[-1] - alone[0])
        return (
            f"{single:.1f} steps/s alone, {both:.1f} of two together in the {ended - begun:.1f} s "
            f"that both ran: {both / single:.2f} times"
        )

    def poison(self) -> str:
        """A broken context dies with its process; the next job finds a good device."""
        first = self.together("poison", self.command("poison"))[0]
        expect(first.status not in ("done", "timeout"), f"it ended as {first.status}")
        after = self.together("after", self.command("look"))[0]
        expect(after.status == "done", f"the next job ended as {after.status}: {after.reason}")
        return f"the job ended by itself ({first.reason}); the next one ran"

    def untouched(self) -> str:
        """This process has not initialised CUDA."""
        torch = sys.modules.get("torch")
        expect(torch is None or not torch.cuda.is_initialized(), "this process initialised CUDA")
        if self.device is not None:
            from hetsched.executor.discovery import discover

            users = [p.pid for one in discover().devices for p in one.processes or ()]
            expect(os.getpid() not in users, "this process uses the GPU")
        return "this process holds no CUDA context"

    def checks(self) -> dict[str, Callable[[], str]]:
        """By name, in the order in which they run."""
        found = {
            "discovery": self.discovery,
            "profile": self.profile,
            "out-of-memory retry": self.memory_retry,
            "memory fraction": self.memory_fraction,
            "kill": self.kill,
            "two jobs sharing": self.sharing,
            "poisoned context": self.poison,
            "no CUDA in the parent": self.untouched,
        }
        if self.device is None:
            del found["memory fraction"], found["poisoned context"]
        return found


def answer(log: Path) -> dict[str, Any] | None:
    """The JSON that a job printed last, between warnings of its libraries; None: not yet."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line for line in text.splitlines(keepends=True) if line.startswith("{")]
    said: dict[str, Any] | None = None
    if lines and lines[-1].endswith("\n"):
        said = json.loads(lines[-1])
    return said


def said(outcome: Outcome) -> dict[str, Any]:
    """What a job that must be done has printed."""
    expect(outcome.status == "done", f"{outcome.status}: {outcome.reason}; see {outcome.log}")
    found = answer(Path(outcome.log or ""))
    if found is None:
        raise Failed(f"it printed nothing to {outcome.log}")
    return found


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def perform(checks: dict[str, Callable[[], str]], end: float) -> list[Check]:
    """Run the checks one after the other; a mistake in one does not keep others from running."""
    results = []
    for name, check in checks.items():
        begun = time.monotonic()
        if begun > end:
            results.append(Check(name, None, "not begun: the time is up"))
            continue
        try:
            passed, detail = True, check()
        except Failed as error:
            passed, detail = False, str(error)
        except Exception as error:
            passed, detail = False, f"{type(error).__name__}: {error}"
        results.append(Check(name, passed, detail, time.monotonic() - begun))
        print(f"{'ok  ' if passed else 'FAIL'} {name}: {detail}", file=sys.stderr, flush=True)
    return results


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Check hetsched's executor on a real NVIDIA GPU.")
    parser.add_argument("--cpu", action="store_true", help="only what needs no GPU")
    parser.add_argument("--minutes", type=float, default=8.0, help="begin nothing afterwards")
    parser.add_argument("--json", type=Path, help="write the results")
    options = parser.parse_args()
    from hetsched.executor.discovery import discover

    found = discover(visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
    if not found.usable and not options.cpu:
        raise UserError(
            f"there is no GPU to check ({' '.join(found.notes)}) Use --cpu for the rest"
        )
    device = None if options.cpu else found.usable[0]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hetsched-gpu-") as folder:
        end = begun + 60 * options.minutes
        results = perform(Bench(device, Path(folder), end).checks(), end)
    from rich.console import Console
    from rich.table import Table

    table = Table("check", "passed", "seconds", "what was seen")
    for one in results:
        word = {True: "yes", False: "NO", None: "not begun"}[one.passed]
        table.add_row(one.name, word, f"{one.seconds:.1f}", one.detail)
    Console(width=None if sys.stdout.isatty() else 160, markup=False).print(table)
    report = {
        "device": None if device is None else asdict(device),
        "driver": found.driver,
        "python": platform.python_version(),
        "seconds": time.monotonic() - begun,
        "checks": [asdict(one) for one in results],
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if all(one.passed for one in results) else 1)


if __name__ == "__main__":
    run(main)
