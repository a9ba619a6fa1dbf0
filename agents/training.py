"""Training: warm start, PPO, validation, and a run folder that survives being killed.

A run folder holds ``config.json``, ``metrics.csv``, ``learning_curve.png``, ``best.safetensors``
(by validation), ``last.safetensors`` and ``resume.pt``, from which the run goes on exactly where
it was last saved.  Everything is written whole or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hetsched import __version__
from hetsched.agents.checkpoint import save_checkpoint
from hetsched.agents.imitation import Imitation
from hetsched.agents.policy import rollout
from hetsched.agents.ppo import GraphVecEnv, make_ppo, network_of, on_rollout_start
from hetsched.agents.rules import make_rule
from hetsched.agents.tracking import Tracker, TrackingOptions
from hetsched.agents.validation import Validation
from hetsched.envs.observation import Extent
from hetsched.envs.problem import Problem
from hetsched.envs.scenarios import Scenario, get_scenario
from hetsched.envs.vector import VectorEnvironment
from hetsched.gnn.network import SchedulingNetwork

if TYPE_CHECKING:
    from hetsched.agents.recipe import TrainConfig
    from hetsched.envs.simulator import State

RESUME_FORMAT = 1
SAVE_SECONDS = 20.0  # at most this much work is done again after a kill


class TrainingError(ValueError):
    """A run folder that cannot be used; one sentence with the mend."""


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
        initial: weights to start from, such as an earlier checkpoint's.
        resume: go on with the run in the folder; ``config`` must be its own.
        progress: watches.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: str | Path,
        tracking: TrackingOptions | None = None,
        initial: SchedulingNetwork | None = None,
        resume: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.config, self.folder = config, Path(folder)
        self.progress = progress or Progress()
        self.scenario: Scenario = get_scenario(config.scenario)
        self.sizes = config.sizes or self.scenario.sizes
        self.folder.mkdir(parents=True, exist_ok=True)
        saved = self._load() if resume else None
        torch.manual_seed(config.seed)
        self.network = initial or SchedulingNetwork(config.network)
        self.stage, self.steps, self.best = "warm start", 0, float("inf")
        self.seconds, self.cpu_seconds = 0.0, 0.0
        self._saved_at, self._validated_at = 0.0, 0
        if saved is not None:
            self.stage, self.steps, self.best = saved["stage"], saved["steps"], saved["best"]
            self.seconds, self.cpu_seconds = saved["seconds"], saved["cpu_seconds"]
            self._validated_at = saved["validated_at"]
        self._saved = saved
        self.tracker = Tracker(
            self.folder,
            config.to_dict(),
            tracking,
            resume_step=self.steps if resume else None,
            say=self.progress.say,
        )
        self.validation = Validation(self.scenario, self.sizes, config)
        self._clock, self._cpu_clock = time.monotonic(), time.process_time()

    def run(self) -> Path:
        """Train to the end; returns the best checkpoint's path."""
        _write_json(self.folder / "config.json", self.config.to_dict())
        if self._saved is None:
            self._validate()
        if self.stage == "warm start":
            self._warm_start()
        self._reinforce()
        self._finish()
        return self.folder / "best.safetensors"

    # ---- stages --------------------------------------------------------------------------------

    def _warm_start(self) -> None:
        options = self.config.warm_start
        if options.decisions:
            teacher = None if options.teacher == "annealing" else make_rule(options.teacher)
            stage = Imitation(
                self.network, self.scenario, self.sizes, options, self.config.seed, teacher
            )
            if self._saved is not None:
                self.network.load_state_dict(self._saved["network"])
                stage.load_state_dict(self._saved["warm_start"])
                self._restore_randomness()
            self.progress.stage("warm start", options.decisions, stage.decisions)
            while not stage.finished:
                self.network.train()
                metrics = stage.step()
                self.steps = stage.decisions
                self._after_round(
                    {f"warm_start/{name}": value for name, value in metrics.items()},
                    stage.decisions,
                    lambda: {"warm_start": stage.state_dict()},
                )
            self._validate()
        self.stage, self._saved = "ppo", None

    def _reinforce(self) -> None:
        config = self.config
        if config.timesteps == 0:
            return
        environment = VectorEnvironment(
            self.scenario,
            config.groups,
            config.repeats,
            config.seed,
            self.sizes,
            reference=_rule_cost(self.scenario),
        )
        extent = widest(self.scenario, self.sizes)
        model = make_ppo(
            environment, extent, config.ppo, config.network, config.seed, config.device
        )
        network_of(model).load_state_dict(self.network.state_dict())
        self.network = network_of(model)
        before, remaining = config.warm_start.decisions, config.timesteps
        if self._saved is not None:
            self.network.load_state_dict(self._saved["network"])
            model.policy.optimizer.load_state_dict(self._saved["optimizer"])
            model.num_timesteps = self._saved["num_timesteps"]
            model._n_updates = self._saved["updates"]
            remaining = config.timesteps - model.num_timesteps
            assert isinstance(model.env, GraphVecEnv)
            model._last_obs = model.env.resume(self._saved["environment"])
            model._last_episode_starts = self._saved["episode_starts"].numpy()
        self.progress.stage("ppo", config.timesteps, model.num_timesteps)
        first = True

        def boundary() -> None:
            nonlocal first
            if first:  # nothing learned yet; randomness is restored where it was saved
                first = False
                if self._saved is not None:
                    self._restore_randomness()
                return
            self.steps = before + model.num_timesteps
            self._after_round(
                _ppo_metrics(model),
                model.num_timesteps,
                lambda: {
                    "optimizer": model.policy.optimizer.state_dict(),
                    "num_timesteps": model.num_timesteps,
                    "updates": model._n_updates,
                    "environment": environment.state_dict(),
                    "episode_starts": torch.from_numpy(np.array(model._last_episode_starts)),
                },
            )

        if remaining > 0:
            model.learn(
                remaining,
                callback=on_rollout_start(boundary),
                log_interval=None,  # type: ignore[arg-type]
                reset_num_timesteps=self._saved is None,
            )
            boundary()

    def _finish(self) -> None:
        if self._validated_at != self.steps:
            self._validate()
        self._checkpoint("last")
        title = f"{self.config.scenario}, seed {self.config.seed}"
        self.tracker.draw(curves(self.validation.rule), title)
        metadata = {"validation_ratio": self.best}
        name = f"policy-{self.config.scenario}"
        self.tracker.checkpoint(self.folder / "best.safetensors", name, ["best"], metadata)
        self.tracker.checkpoint(self.folder / "last.safetensors", name, ["last"], metadata)
        self.tracker.summary({"validation/best_ratio": self.best, "seconds": self.seconds})
        self.tracker.picture("learning_curve", self.folder / "learning_curve.png")

    # ---- after every round ---------------------------------------------------------------------

    def _after_round(self, metrics: dict[str, float], done: int, extra: Any) -> None:
        self._count_time()
        self.tracker.log(self.steps, {**metrics, "seconds": self.seconds})
        self.progress.advance(done, {**metrics, **self.validation.latest})
        if self.steps - self._validated_at >= self.config.eval_freq:
            self._validate()
        if self._clock - self._saved_at >= SAVE_SECONDS:
            self._save(extra())

    def _count_time(self) -> None:
        wall, cpu = time.monotonic(), time.process_time()
        self.seconds += wall - self._clock
        self.cpu_seconds += cpu - self._cpu_clock
        self._clock, self._cpu_clock = wall, cpu

    def _validate(self) -> None:
        values = self.validation.measure(self.network)
        self._validated_at = self.steps
        ratio = values["validation/ratio_to_rule"]
        self.tracker.log(self.steps, values)
        if ratio < self.best:
            self.best = ratio
            self._checkpoint("best")
        if self.steps:
            title = f"{self.config.scenario}, seed {self.config.seed}"
            self.tracker.draw(curves(self.validation.rule), title)

    def _checkpoint(self, name: str) -> None:
        save_checkpoint(
            self.folder / f"{name}.safetensors",
            self.network,
            {
                "scenario": self.config.scenario,
                "objective": str(self.scenario.objective),
                "deciding": self.scenario.deciding,
                "training": self.config.to_dict(),
                "decisions": self.steps,
                "seconds": round(self.seconds, 1),
                "cpu_seconds": round(self.cpu_seconds, 1),
                "validation": self.validation.latest,
                "hetsched": __version__,
            },
        )

    # ---- surviving a kill ----------------------------------------------------------------------

    def _save(self, extra: Mapping[str, Any]) -> None:
        self._saved_at = time.monotonic()
        state = {
            "format": RESUME_FORMAT,
            "config": json.dumps(self.config.to_dict()),
            "stage": self.stage,
            "steps": self.steps,
            "best": self.best,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "validated_at": self._validated_at,
            "network": self.network.state_dict(),
            "torch_random": torch.get_rng_state(),
            **extra,
        }
        temporary = self.folder / "resume.pt.partial"
        torch.save(state, temporary)
        os.replace(temporary, self.folder / "resume.pt")

    def _load(self) -> dict[str, Any] | None:
        path = self.folder / "resume.pt"
        if not path.is_file():
            return None  # killed before the first save: begin again
        try:
            saved: dict[str, Any] = torch.load(path, weights_only=True)  # never runs code
        except Exception as error:  # torch raises many kinds for a damaged file
            raise TrainingError(
                f"{path} is damaged; delete it to train {self.folder} from the start"
            ) from error
        if saved.get("format") != RESUME_FORMAT:
            raise TrainingError(f"{path} is of another hetsched; choose another folder")
        if json.loads(saved["config"]) != self.config.to_dict():
            raise TrainingError(
                f"the run in {self.folder} has other options; resume it without giving any"
            )
        return saved

    def _restore_randomness(self) -> None:
        assert self._saved is not None
        torch.set_rng_state(self._saved["torch_random"])


def widest(scenario: Scenario, sizes: tuple[tuple[int, int], ...]) -> Extent:
    """An extent that holds every instance of the scenario at these sizes."""
    rng = np.random.default_rng(0)
    extents = [
        Extent.of(Problem.from_instances([scenario.generate(rng, *size) for _ in range(16)]))
        for size in sizes
    ]
    return Extent(
        jobs=max(one.jobs for one in extents),
        machines=max(one.machines for one in extents),
        slots=max(one.slots for one in extents),
        arcs=max(one.arcs for one in extents),
        dense=all(one.dense for one in extents),
    )


def curves(rule: str) -> dict[str, list[str]]:
    """Panels of the learning curve: title -> metrics."""
    return {
        f"validation cost / {rule}": ["validation/ratio_to_rule"],
        "warm start": ["warm_start/loss", "warm_start/agreement"],
        "PPO: mean episode reward": ["ppo/reward"],
        "PPO: entropy": ["ppo/entropy"],
    }


def _rule_cost(scenario: Scenario) -> Any:
    """Costs of a quick rule, the unit of rewards."""
    rule = make_rule("min-min" if scenario.deciding == "plan" else "ect-wait")

    def cost(state: State) -> Tensor:
        return rollout(rule, state).cost()

    return cost


def _ppo_metrics(model: Any) -> dict[str, float]:
    logged = model.logger.name_to_value
    names = {
        "train/entropy_loss": "ppo/entropy",
        "train/value_loss": "ppo/value_loss",
        "train/policy_gradient_loss": "ppo/policy_loss",
        "train/approx_kl": "ppo/kl",
        "train/clip_fraction": "ppo/clip_fraction",
        "train/explained_variance": "ppo/explained_variance",
        "train/learning_rate": "ppo/learning_rate",
    }
    found = {short: float(logged[name]) for name, short in names.items() if name in logged}
    if "ppo/entropy" in found:
        found["ppo/entropy"] = -found["ppo/entropy"]
    return {**found, "ppo/reward": model.rollout_buffer.mean_reward}


def _write_json(path: Path, value: Any) -> None:
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(temporary, path)


@contextlib.contextmanager
def closing(trainer: Trainer) -> Iterator[Trainer]:
    """Close the tracker, telling it whether the run failed."""
    try:
        yield trainer
    except BaseException:
        trainer.tracker.close(failed=True)
        raise
    trainer.tracker.close()
