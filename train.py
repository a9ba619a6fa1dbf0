"""Train a policy: ``python train.py --scenario gpu-cluster --out runs/gpu-cluster``."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from hetsched.agents.recipe import TrainConfig, recipe
from hetsched.cli import UserError, prepare_process, run, user_input

if TYPE_CHECKING:
    from hetsched.agents.training import Trainer

Alias = tyro.conf.arg


@dataclass(frozen=True)
class Options:
    """Train a scheduling policy: a supervised warm start, then PPO.

    Options left out take the value of the scenario's recipe, or of --config.
    """

    scenario: str | None = None
    """What to train on: hitzges, gpu-cluster, gpu-cluster-offline, own:..., with options after a
    colon (docs/scenarios.md)."""
    out: Annotated[Path | None, Alias(aliases=["-f", "--log-folder"])] = None
    """Folder of the run; runs/SCENARIO by default."""
    resume: bool = False
    """Go on with the run in --out, exactly where it was last saved."""
    config: Path | None = None
    """Start from the config.json of an earlier run instead of the recipe."""
    init: Annotated[str | None, Alias(aliases=["-i", "--trained-agent"])] = None
    """Start from the weights of a checkpoint or of a shipped policy."""
    timesteps: Annotated[int | None, Alias(aliases=["-n", "--n-timesteps"])] = None
    """Decisions of PPO, over all parallel rollouts."""
    warm_start: int | None = None
    """Labelled decisions of the warm start; 0 for PPO alone."""
    teacher: str | None = None
    """Of the warm start: annealing (plans without precedence) or a rule's name."""
    seed: int | None = None
    """Of weights, instances and sampling."""
    jobs: int | None = None
    """Jobs per training instance; with --machines, instead of the recipe's mix of sizes."""
    machines: int | None = None
    """Machines per training instance."""
    n_envs: int | None = None
    """Rollouts side by side."""
    repeats: int | None = None
    """Rollouts of the same instance, whose mean is the baseline; divides --n-envs."""
    n_steps: int | None = None
    """Decisions per rollout and environment between updates."""
    batch_size: int | None = None
    """Decisions per gradient step of PPO."""
    n_epochs: int | None = None
    """Passes over each rollout."""
    learning_rate: float | None = None
    """Of PPO, at the start."""
    ent_coef: float | None = None
    """Weight of the entropy bonus."""
    hidden: int | None = None
    """Width of the network."""
    layers: int | None = None
    """Rounds of message passing."""
    eval_freq: int | None = None
    """Decisions between validations."""
    eval_episodes: int | None = None
    """Validation instances per size."""
    device: str | None = None
    """Where the network lives: cpu or cuda."""
    num_threads: int | None = None
    """Threads of torch; all cores by default."""
    progress: Annotated[bool, Alias(aliases=["-P"])] = True
    """Show a progress bar."""
    track: bool = False
    """Record the run in Weights & Biases (offline without a key)."""
    wandb_project_name: str = "hetsched"
    """Project in Weights & Biases."""
    wandb_entity: str | None = None
    """Entity in Weights & Biases; the account's own by default."""
    wandb_group: str | None = None
    """Group in Weights & Biases; the name of --out by default."""
    wandb_tags: tuple[str, ...] = ()
    """Tags in Weights & Biases."""


def main() -> None:
    """Entry point of ``hetsched-train``."""
    options = tyro.cli(Options, prog="train.py")
    run(lambda: train(options))


def train(options: Options) -> None:
    """Carry out the command."""
    config, folder = resolve(options)
    prepare_process(options.num_threads)
    from hetsched.agents.checkpoint import load_checkpoint, resolve_policy
    from hetsched.agents.progress import RichProgress
    from hetsched.agents.tracking import TrackingOptions
    from hetsched.agents.training import Trainer, closing

    initial = None
    if options.init is not None:
        initial = load_checkpoint(resolve_policy(options.init)).network
        config = dataclasses.replace(config, network=initial.config)
    tracking = TrackingOptions(
        track=options.track,
        project=options.wandb_project_name,
        entity=options.wandb_entity,
        group=options.wandb_group,
        tags=options.wandb_tags,
    )
    _check_device(config.device)
    with RichProgress(enabled=options.progress) as progress:
        with user_input():
            trainer = Trainer(config, folder, tracking, initial, options.resume, progress)
        with closing(trainer):
            best = trainer.run()
            progress.close()
            _final_table(trainer, best)


def resolve(options: Options) -> tuple[TrainConfig, Path]:
    """The configuration and the folder that the options ask for.

    Raises:
        UserError: options that contradict each other, or a folder in use.
    """
    if options.resume:
        return _resolve_resumed(options)
    with user_input():
        if options.config is not None:
            from hetsched.agents.recipe import read_config

            config = read_config(options.config)
            if options.scenario not in (None, config.scenario):
                config = dataclasses.replace(config, scenario=str(options.scenario))
        else:
            config = recipe(options.scenario or "gpu-cluster")
        config = override(config, options)
    folder = options.out or Path("runs") / config.scenario.replace(":", "-").replace("/", "-")
    if (folder / "config.json").exists():
        raise UserError(
            f"{folder} already holds a run; add --resume to go on with it or choose another --out"
        )
    return config, folder


def override(config: TrainConfig, options: Options) -> TrainConfig:
    """The configuration with the options that were given."""

    def changed(part: Any, **values: Any) -> Any:
        given = {name: value for name, value in values.items() if value is not None}
        return dataclasses.replace(part, **given) if given else part

    if (options.jobs is None) != (options.machines is None):
        raise UserError("give --jobs and --machines together, or neither")
    sizes = None if options.jobs is None else ((options.jobs, options.machines),)
    groups, repeats = None, options.repeats or config.repeats
    if options.n_envs is not None:
        if options.n_envs % repeats:
            raise UserError(f"--n-envs must be a multiple of --repeats ({repeats})")
        groups = options.n_envs // repeats
    return changed(
        config,
        sizes=sizes,
        timesteps=options.timesteps,
        seed=options.seed,
        groups=groups,
        repeats=options.repeats,
        eval_freq=options.eval_freq,
        eval_count=options.eval_episodes,
        device=options.device,
        network=changed(config.network, hidden=options.hidden, layers=options.layers),
        warm_start=changed(
            config.warm_start, decisions=options.warm_start, teacher=options.teacher
        ),
        ppo=changed(
            config.ppo,
            n_steps=options.n_steps,
            batch_size=options.batch_size,
            n_epochs=options.n_epochs,
            learning_rate=options.learning_rate,
            ent_coef=options.ent_coef,
        ),
    )


FREE_ON_RESUME = {"out", "resume", "num_threads", "progress", "track", "wandb_project_name",
                  "wandb_entity", "wandb_group", "wandb_tags"}  # fmt: skip


def _resolve_resumed(options: Options) -> tuple[TrainConfig, Path]:
    given = [
        field.name
        for field in dataclasses.fields(options)
        if field.name not in FREE_ON_RESUME and getattr(options, field.name) != field.default
    ]
    if options.out is None and given == ["scenario"]:
        options = dataclasses.replace(options, out=Path("runs") / str(options.scenario))
        given = []
    if given:
        raise UserError(
            f"--{given[0].replace('_', '-')} cannot change when a run is resumed; leave it out"
        )
    if options.out is None:
        raise UserError("--resume needs the folder of the run: add --out FOLDER")
    from hetsched.agents.recipe import read_config

    with user_input():
        return read_config(options.out / "config.json"), options.out


def _check_device(device: str) -> None:
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA GPU here; use --device cpu")
    if not device.startswith(("cuda", "cpu")):
        raise UserError(f"--device {device}: use cpu or cuda")


def _final_table(trainer: Trainer, best: Path) -> None:
    from hetsched.agents.final import final_table

    table = final_table(trainer, best)
    print(table.text())
    print(f"\nbest checkpoint: {best}")
    print(f"evaluate it:     python evaluate.py --scenario {trainer.config.scenario} "
          f"--policy {best} --against all", file=sys.stdout)  # fmt: skip


if __name__ == "__main__":
    main()
