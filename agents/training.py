"""Trainer: a supervised warm start, then PPO, validated throughout; it survives being killed.

At the same seed and with the same number of threads a run that was killed and resumed ends with the
weights of a run that was not: see :mod:`hetsched.agents.run_folder` for what is on disk.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from hetsched import __version__
from hetsched.agents.imitation import Imitation
from hetsched.agents.reinforcement import Reinforcement
from hetsched.agents.run_folder import RATIO, RunFolder
from hetsched.agents.teachers import check_annealing, teacher_rule
from hetsched.agents.temperature import calibrate
from hetsched.agents.tracking import Tracker, TrackingOptions
from hetsched.agents.validation import Validation
from hetsched.envs.scenarios import Scenario, get_scenario
from hetsched.gnn.network import SchedulingNetwork

if TYPE_CHECKING:
    from hetsched.agents.recipe import TrainConfig

SAVE_SECONDS = 20.0  # at most this much work, and one round, is done again after a kill


class Progress:
    """What a person watches; the command line replaces it with a bar."""

    def stage(self, name: str, total: int, done: int) -> None:
        """A stage of ``total`` decisions begins, ``done`` of them taken earlier."""

    def advance(self, done: int, values: Mapping[str, float]) -> None:
        """So many decisions of the stage are taken; ``values`` are the latest metrics."""

    def say(self, sentence: str) -> None:
        """Something worth a line."""


class Trainer:
    """One training run.

    Args:
        config: what to do.
        folder: of the run; created if needed.
        tracking: what to tell Weights & Biases.
        initial: weights to start from, such as an earlier checkpoint's; of the size in ``config``.
        resume: go on with the run in the folder; ``config`` must be its own.
        progress: watches.
        origin: where ``initial`` comes from, for the checkpoints' metadata.
        save_seconds: between saves of what a killed run goes on from.

    Raises:
        ValueError: a scenario, teacher or rule that does not exist or does not fit, or a folder
            that cannot be resumed.
        OSError: the folder cannot be made.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: str | Path,
        tracking: TrackingOptions | None = None,
        initial: SchedulingNetwork | None = None,
        resume: bool = False,
        progress: Progress | None = None,
        *,
        origin: str = "",
        save_seconds: float = SAVE_SECONDS,
    ) -> None:
        self.config, self.progress = config, progress or Progress()
        self.origin, self.save_seconds = origin, save_seconds
        self.scenario: Scenario = get_scenario(config.scenario)
        self.sizes = config.sizes or self.scenario.sizes
        self.rule = teacher_rule(config.warm_start, self.scenario, self.sizes)
        if config.ppo.outlook_moves:
            check_annealing(self.scenario, self.sizes[0])
        self.folder = RunFolder(folder, config)
        torch.manual_seed(config.seed)
        self.network = (initial or SchedulingNetwork(config.network)).to(config.device)
        self.stage: Literal["warm start", "ppo", "done"] = "warm start"
        self.steps, self.best = 0, float("inf")
        self.seconds, self.cpu_seconds = 0.0, 0.0
        self._validated_at = -1  # steps
        self._saved = self._restore() if resume else None
        self.validation = Validation(self.scenario, self.sizes, config)
        if self._saved is not None:
            self.validation.latest = self._saved.get("validation", {})
        self.tracker = Tracker(
            self.folder.path,
            config.to_dict(),
            tracking,
            # before the first validation, the metrics that may be there are written again
            resume_step=(self.steps if self._validated_at >= 0 else -1) if resume else None,
            say=self.progress.say,
        )
        self._clock, self._cpu_clock = time.monotonic(), time.process_time()
        self._saved_at = self._clock

    def run(self) -> Path:
        """Train to the end; returns the best checkpoint's path."""
        if self._saved is None:
            self._save({})  # before config.json, so that whatever counts as a run can be resumed
            self.folder.write_config()
        if self._validated_at < 0:
            self._validate()
        if self.stage == "warm start":
            self._warm_start()
        if self.stage == "ppo":
            if self.config.timesteps:
                self._reinforce()
            self._finish()
        elif self.best == float("inf"):  # somebody took best.safetensors away
            self._validate()
            self._calibrate()
        return self.folder.checkpoint_path("best")

    # ---- stages --------------------------------------------------------------------------------

    def _warm_start(self) -> None:
        config = self.config.warm_start
        if config.decisions:
            stage = Imitation(
                self.network, self.scenario, self.sizes, config, self.config.seed, self.rule
            )
            if self._saved is not None and "warm_start" in self._saved:
                stage.load_state_dict(self._saved["warm_start"])
            self.progress.stage("warm start", config.decisions, stage.decisions)
            while not stage.finished:
                self.network.train()
                metrics = stage.step()
                self.steps = stage.decisions
                self._after_round(
                    {f"warm_start/{name}": value for name, value in metrics.items()},
                    stage.decisions,
                    stage.finished,
                    lambda: {"warm_start": stage.state_dict()},
                )
            if self._validated_at != self.steps:
                self._validate()
            if self.config.timesteps:  # what PPO adds is measured against it
                self._checkpoint("warm_start")
        self.stage, self._saved = "ppo", None

    def _reinforce(self) -> None:
        stage = Reinforcement(self.network, self.scenario, self.sizes, self.config)
        self.network = stage.network
        if self._saved is not None:
            stage.load_state_dict(self._saved, self._saved["torch_random"])
            before = self.steps - stage.decisions
        else:  # the warm start counts as planned, but steps never run backwards
            least = self.steps - stage.rollout_size + 1
            before = max(self.config.warm_start.decisions, least)
            if self.config.ppo.outlook_moves:
                self.network.forget_value()  # the warm start taught that of other rewards
        total = self.config.timesteps
        self.progress.stage("ppo", total, stage.decisions)

        def after_round(metrics: dict[str, float]) -> None:
            self.steps = before + stage.decisions
            ends = stage.decisions >= total
            self._after_round(metrics, stage.decisions, ends, stage.state_dict)

        stage.learn(after_round)

    def _finish(self) -> None:
        if self._validated_at != self.steps or self.best == float("inf"):
            self._validate()
        self._checkpoint("last")
        self._calibrate()
        metadata = {"validation_ratio": self.best}
        name = f"policy-{self.config.scenario}"
        for which in ("best", "last"):
            path = self.folder.checkpoint_path(which)
            self.tracker.checkpoint(path, name, [which], metadata)
        self.tracker.summary({"validation/best_ratio": self.best, "seconds": self.seconds})
        self.tracker.picture("learning_curve", self.folder.path / "learning_curve.png")
        self.stage = "done"
        self._save({})

    def _calibrate(self) -> None:
        path, config = self.folder.checkpoint_path("best"), self.config
        calibrate(path, self.scenario, self.sizes, config.eval_count, config.device)

    # ---- after every round ---------------------------------------------------------------------

    def _after_round(
        self,
        metrics: Mapping[str, float],
        done: int,
        ends: bool,
        stage_state: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Count, validate where due, report, save where due; ``ends``: the stage's last round."""
        self._count_time()
        values = {**metrics, "seconds": self.seconds}
        if ends or self.steps - self._validated_at >= self.config.eval_freq:
            self._validate(values)
        else:
            self.tracker.log(self.steps, values)
        self.progress.advance(done, {**metrics, **self.validation.latest})
        if ends or self._clock - self._saved_at >= self.save_seconds:
            self._save(stage_state())

    def _count_time(self) -> None:
        wall, cpu = time.monotonic(), time.process_time()
        self.seconds += wall - self._clock
        self.cpu_seconds += cpu - self._cpu_clock
        self._clock, self._cpu_clock = wall, cpu

    def _validate(self, metrics: Mapping[str, float] | None = None) -> None:
        """Measure, keep the best, and report in one row with the metrics of the round."""
        values = self.validation.measure(self.network)
        self._validated_at = self.steps
        if values[RATIO] < self.best:
            self._checkpoint("best")
            self.best = values[RATIO]
        self.tracker.log(self.steps, {**values, **(metrics or {})})
        if self.steps:
            self._draw()

    def _draw(self) -> None:
        title = f"{self.config.scenario}, seed {self.config.seed}"
        self.tracker.draw(curves(self.validation.rule), title)

    def _checkpoint(self, name: str) -> None:
        self.folder.write_checkpoint(
            name,
            self.network,
            {
                "objective": str(self.scenario.objective),
                "deciding": self.scenario.deciding,
                **({"initial": self.origin} if self.origin else {}),
                "decisions": self.steps,
                "seconds": round(self.seconds, 1),
                "cpu_seconds": round(self.cpu_seconds, 1),
                "validation": self.validation.latest,
                "hetsched": __version__,
            },
        )

    # ---- surviving a kill ----------------------------------------------------------------------

    def _save(self, stage_state: Mapping[str, Any]) -> None:
        self._saved_at = time.monotonic()
        self.folder.save(
            {
                "stage": self.stage,
                "steps": self.steps,
                "seconds": self.seconds,
                "cpu_seconds": self.cpu_seconds,
                "validated_at": self._validated_at,
                "validation": self.validation.latest,
                "origin": self.origin,
                "network": self.network.state_dict(),
                "torch_random": torch.get_rng_state(),
                **stage_state,
            }
        )

    def _restore(self) -> dict[str, Any]:
        saved = self.folder.load()
        self.network.load_state_dict(saved["network"])
        self.stage, self.steps = saved["stage"], saved["steps"]
        self.seconds, self.cpu_seconds = saved["seconds"], saved["cpu_seconds"]
        self._validated_at = saved["validated_at"]
        self.origin = saved.get("origin", "")
        self.best = self.folder.best_ratio()
        return saved


def curves(rule: str) -> dict[str, list[str]]:
    """Panels of the learning curve: title -> metrics."""
    return {
        f"validation cost / {rule}": [RATIO],
        "warm start": ["warm_start/loss", "warm_start/agreement"],
        "PPO: mean reward of a decision": ["ppo/reward"],
        "PPO: entropy": ["ppo/entropy"],
    }


@contextlib.contextmanager
def closing(trainer: Trainer) -> Iterator[Trainer]:
    """Close the tracker, telling it whether the run failed."""
    try:
        yield trainer
    except BaseException:
        trainer.tracker.close(failed=True)
        raise
    trainer.tracker.close()
