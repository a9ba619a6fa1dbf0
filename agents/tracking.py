"""Tracker: a run's metrics on disk and, where asked for, in Weights & Biases.

Weights & Biases may be absent, without a key, without network or broken: every such case costs
one sentence of warning and never the run.
"""

from __future__ import annotations

import json
import netrc
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlparse

from hetsched.agents.metrics import MetricsFile, draw_learning_curve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

RUN_FILE = "wandb_run.json"
LOGIN_SECONDS = 30.0  # then the run goes on offline


@dataclass(frozen=True)
class TrackingOptions:
    """What to tell Weights & Biases.

    Attributes:
        track: use it at all.
        project, entity: where the run appears; entity None means the account's own.
        group: runs shown together; None means the name of the run's folder.
        tags: free labels.
        name: of the run; None means the name of the run's folder.
    """

    track: bool = False
    project: str = "hetsched"
    entity: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    name: str | None = None


def warn(sentence: str) -> None:
    """The default voice of a tracker: one line on standard error."""
    print(sentence, file=sys.stderr, flush=True)


class Tracker:
    """Writes ``metrics.csv`` and ``learning_curve.png`` to a run's folder, and to W&B if asked.

    Args:
        folder: of the run; it exists.
        config: the resolved configuration, JSON-serialisable.
        options: what to tell Weights & Biases.
        resume_step: None for a new run, otherwise the step from which the run continues.
        say: receives warnings, one sentence each.
    """

    def __init__(
        self,
        folder: str | Path,
        config: Mapping[str, Any],
        options: TrackingOptions | None = None,
        resume_step: int | None = None,
        say: Callable[[str], None] = warn,
    ) -> None:
        self.folder = Path(folder)
        self._say = say
        self._warned: set[str] = set()
        self._metrics = MetricsFile(self.folder / "metrics.csv", resume_step)
        self._wandb: Any = None
        self._run: Any = None
        options = options or TrackingOptions()
        if options.track:
            self._start(config, options, resumed=resume_step is not None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(failed=error is not None)

    @property
    def tracking(self) -> bool:
        """A Weights & Biases run is being recorded, online or offline."""
        return self._run is not None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Record metrics at a step (decisions taken in training so far)."""
        self._metrics.write(step, values)
        self._guarded("metrics", lambda: self._run.log({**values, "step": step}))

    def draw(self, panels: Mapping[str, Sequence[str]], title: str = "") -> None:
        """Draw ``learning_curve.png``; see ``hetsched.agents.metrics.draw_learning_curve``."""
        draw_learning_curve(
            self.folder / "metrics.csv", self.folder / "learning_curve.png", panels, title
        )

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Record a table, such as the final comparison, in Weights & Biases."""

        def send() -> None:
            data = [list(row) for row in rows]
            self._run.log({name: self._wandb.Table(columns=list(columns), data=data)})

        self._guarded("the table", send)

    def picture(self, name: str, path: str | Path) -> None:
        """Record a picture in Weights & Biases."""
        self._guarded("a picture", lambda: self._run.log({name: self._wandb.Image(str(path))}))

    def checkpoint(
        self,
        path: str | Path,
        name: str,
        aliases: Sequence[str],
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Record a checkpoint as the next version of an artifact.

        Args:
            name: of the artifact, the same for all versions; odd characters become dashes.
            aliases: such as ``best`` and ``last``; they move to this version.
        """

        def send() -> None:
            artifact = self._wandb.Artifact(
                re.sub(r"[^A-Za-z0-9_.-]+", "-", name), type="model", metadata=dict(metadata or {})
            )
            artifact.add_file(str(path))
            self._run.log_artifact(artifact, aliases=list(aliases))

        self._guarded("the checkpoint", send)

    def summary(self, values: Mapping[str, Any]) -> None:
        """Record final numbers that Weights & Biases shows in its table of runs."""
        self._guarded("the summary", lambda: self._run.summary.update(dict(values)))

    def close(self, failed: bool = False) -> None:
        """End the Weights & Biases run; the files on disk are complete at any time."""
        self._guarded("the end of the run", lambda: self._run.finish(exit_code=int(failed)))
        self._run = None

    # ---- Weights & Biases ----------------------------------------------------------------------

    def _guarded(self, what: str, action: Callable[[], object]) -> None:
        """Do something with the W&B run, if there is one; a failure is told once per kind."""
        if self._run is None:
            return
        try:
            action()
        except Exception as error:  # a broken tracker must never end a training
            if what not in self._warned:
                self._warned.add(what)
                reason = _first_line(error)
                self._say(f"W&B could not record {what} ({reason}); the run goes on without it.")

    def _start(self, config: Mapping[str, Any], options: TrackingOptions, resumed: bool) -> None:
        try:
            import wandb
        except Exception as error:  # absent, or an installation that cannot be imported
            self._say(
                f"--track is without effect because wandb cannot be imported ({_first_line(error)}"
                "); install it with: pip install wandb"
            )
            return
        self._wandb = wandb
        mode = choose_mode(os.environ)
        why = "" if "WANDB_MODE" in os.environ else "no W&B key is configured, so "
        known = self._known_run() if resumed else {}
        for attempt in (mode, "offline") if mode == "online" else (mode,):
            try:
                self._run = self._init(config, options, attempt, known)
            except Exception as error:
                why = f"W&B did not start ({_first_line(error)}), so "
            else:
                break
        else:
            self._say(f"{why}the run goes on without it.")
            return
        self._guarded("the axes", self._define_axes)
        self._guarded("the id of the run", lambda: self._remember_run(attempt))
        if attempt == "offline":
            self._guarded("the folder of the run", lambda: self._tell_how_to_sync(why))

    def _init(
        self, config: Mapping[str, Any], options: TrackingOptions, mode: str, known: dict[str, str]
    ) -> Any:
        """A W&B run.

        An online run continues under its id.  W&B loses or hides data when an offline run is
        continued under the same id (wandb issues 2423, 2971, 4624), so an offline continuation
        is a new run in the group of the first.
        """
        continues = mode == "online" and known.get("mode") == "online"
        settings: dict[str, Any] = {"console": "off", "init_timeout": LOGIN_SECONDS}
        if mode == "offline":
            settings["silent"] = True  # one sentence of ours replaces its paragraph
        return self._wandb.init(
            project=options.project,
            entity=options.entity,
            group=options.group or known.get("group") or self.folder.resolve().name,
            tags=list(options.tags),
            name=options.name or self.folder.resolve().name,
            id=known["id"] if continues else None,
            resume="allow" if continues else None,
            mode=mode,
            dir=str(self.folder),
            config=dict(config),
            settings=self._wandb.Settings(**settings),
        )

    def _define_axes(self) -> None:
        """Plot over our own step: W&B's counter refuses steps that a continued run repeats."""
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def _remember_run(self, mode: str) -> None:
        record = {"id": self._run.id, "group": self._run.group, "mode": mode}
        (self.folder / RUN_FILE).write_text(json.dumps(record) + "\n", encoding="utf-8")

    def _known_run(self) -> dict[str, str]:
        try:
            return dict(json.loads((self.folder / RUN_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return {}

    def _tell_how_to_sync(self, why: str) -> None:
        place = Path(self._run.dir).parent  # Run.dir is its "files" folder
        sentence = f"{why}this run is recorded offline; send it later with: "
        self._say(f"{sentence[0].upper()}{sentence[1:]}wandb login && wandb sync {place}")


def choose_mode(environ: Mapping[str, str]) -> str:
    """``WANDB_MODE`` where set, otherwise online with a key and offline without.

    Looking for the key here keeps ``wandb.init`` from asking for one in the terminal.
    """
    return environ.get("WANDB_MODE") or ("online" if has_key(environ) else "offline")


def has_key(environ: Mapping[str, str]) -> bool:
    """A W&B key or token file is in the environment, or netrc knows the W&B host."""
    if environ.get("WANDB_API_KEY") or environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlparse(environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname
    home = Path(environ.get("HOME") or Path.home())
    given = environ.get("NETRC")
    for path in [Path(given)] if given else [home / ".netrc", home / "_netrc"]:
        try:
            if host in netrc.netrc(path).hosts:
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
