"""Train a policy: ``python train.py --scenario gpu-cluster --out runs/gpu-cluster``."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from hetsched.agents.recipe import TrainConfig, read_config, recipe
from hetsched.cli import UserError, check_device, prepare_process, run, user_input

if TYPE_CHECKING:
    from hetsched.agents.training import Trainer

DEFAULT_SCENARIO = "gpu-cluster"
SWITCHES = ("--resume", "--track", "--progress", "-P")
FREE_ON_RESUME = ("out", "resume", "num_threads", "progress", "track")  # and all of wandb's


def _flag(value: str, *names: str, left_out: str = "the recipe's") -> Any:
    """How the help shows an option: kind of value, other names, what leaving it out means."""
    return tyro.conf.arg(aliases=names, metavar=value, help_behavior_hint=f"(default: {left_out})")


@dataclass(frozen=True)
class Options:
    """Train a scheduling policy: a supervised warm start, then PPO (docs/train.md).

    Options left out take the value of the scenario's recipe, or of --config.
    """

    scenario: Annotated[str | None, _flag("NAME", left_out=DEFAULT_SCENARIO)] = None
    """What to train on, with options after a colon (docs/scenarios.md)."""
    out: Annotated[Path | None, _flag("FOLDER", "-f", "--log-folder", left_out="runs/NAME")] = None
    """Folder of the run."""
    resume: bool = False
    """Go on with the run in --out where it was last saved."""
    config: Annotated[Path | None, _flag("FILE", left_out="the recipe")] = None
    """Start from the config.json of an earlier run instead of the recipe."""
    init: Annotated[str | None, _flag("POLICY", "-i", "--trained-agent", left_out="random")] = None
    """Start from the weights of a checkpoint or of a shipped policy."""
    timesteps: Annotated[int | None, _flag("N", "-n", "--n-timesteps")] = None
    """Decisions of PPO, over all parallel rollouts."""
    warm_start: Annotated[int | None, _flag("N")] = None
    """Labelled decisions of the warm start; 0 for PPO alone."""
    teacher: Annotated[str | None, _flag("NAME")] = None
    """Of the warm start: annealing (plans) or a rule's name."""
    seed: Annotated[int | None, _flag("N", left_out="0")] = None
    """Of weights, instances and sampling."""
    jobs: Annotated[int | None, _flag("N", left_out="the recipe's mix of sizes")] = None
    """Jobs per training instance; together with --machines."""
    machines: Annotated[int | None, _flag("N", left_out="the recipe's mix of sizes")] = None
    """Machines per training instance; together with --jobs."""
    n_envs: Annotated[int | None, _flag("N")] = None
    """Rollouts side by side."""
    repeats: Annotated[int | None, _flag("N")] = None
    """Rollouts of the same instance, whose mean is the baseline; divides --n-envs."""
    n_steps: Annotated[int | None, _flag("N")] = None
    """Decisions of each rollout between updates."""
    batch_size: Annotated[int | None, _flag("N")] = None
    """Decisions per gradient step of PPO."""
    n_epochs: Annotated[int | None, _flag("N")] = None
    """Passes over the decisions between updates."""
    learning_rate: Annotated[float | None, _flag("X")] = None
    """Of PPO, at the start."""
    ent_coef: Annotated[float | None, _flag("X")] = None
    """Weight of the entropy bonus."""
    hidden: Annotated[int | None, _flag("N")] = None
    """Width of the network."""
    layers: Annotated[int | None, _flag("N")] = None
    """Rounds of message passing."""
    eval_freq: Annotated[int | None, _flag("N")] = None
    """Decisions between validations."""
    eval_episodes: Annotated[int | None, _flag("N")] = None
    """Validation instances per size."""
    device: Annotated[str | None, _flag("DEVICE", left_out="cpu")] = None
    """Where environment and network live: cpu or cuda."""
    num_threads: Annotated[int | None, _flag("N", left_out="1: the tensors are small")] = None
    """Threads of torch."""
    progress: Annotated[bool, tyro.conf.arg(aliases=["-P"])] = True
    """Show a progress bar."""
    track: bool = False
    """Record the run in Weights & Biases (offline without a key)."""
    wandb_project_name: Annotated[str, tyro.conf.arg(metavar="NAME")] = "hetsched"
    """Project in Weights & Biases."""
    wandb_entity: Annotated[str | None, _flag("NAME", left_out="the account's own")] = None
    """Entity in Weights & Biases."""
    wandb_group: Annotated[str | None, _flag("NAME", left_out="the name of --out")] = None
    """Group in Weights & Biases."""
    wandb_tags: Annotated[tuple[str, ...], _flag("[TAG ...]", left_out="none")] = ()
    """Tags in Weights & Biases."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of ``hetsched-train``; ``argv`` without the program's name."""
    given = _with_values(sys.argv[1:] if argv is None else argv)
    options = tyro.cli(Options, prog="train.py", args=given, config=(tyro.conf.FlagConversionOff,))
    run(lambda: train(options))


def _with_values(argv: Sequence[str]) -> list[str]:
    """A switch may stand alone or have a value, as a sweep gives it: ``--resume --track=true``."""
    out: list[str] = []
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        after_switch = index > 0 and argv[index - 1] in SWITCHES
        if name in SWITCHES and equals:
            word = f"{name}={value.capitalize()}"
        elif word.lower() in ("true", "false") and after_switch:
            word = word.capitalize()
        out.append(word)
        follower = "".join(argv[index + 1 : index + 2]).lower()
        if word in SWITCHES and follower not in ("true", "false"):
            out.append("True")
    return out


def train(options: Options) -> None:
    """Carry out the command."""
    config, folder = resolve(options)
    if options.num_threads is not None and options.num_threads < 1:
        raise UserError(f"--num-threads is {options.num_threads}; give 1 or more")
    prepare_process(options.num_threads or 1)
    from hetsched.agents.checkpoint import load_checkpoint, resolve_policy
    from hetsched.agents.progress import RichProgress
    from hetsched.agents.tracking import TrackingOptions
    from hetsched.agents.training import Trainer, closing

    initial = None
    if options.init is not None:
        initial = load_checkpoint(resolve_policy(options.init)).network
        config = _sized_like(initial.config, config, options)
    tracking = TrackingOptions(
        track=options.track,
        project=options.wandb_project_name,
        entity=options.wandb_entity,
        group=options.wandb_group,
        tags=options.wandb_tags,
    )
    check_device(config.device)
    with RichProgress(enabled=options.progress) as progress:
        with user_input():
            origin = options.init or ""
            trainer = Trainer(
                config, folder, tracking, initial, options.resume, progress, origin=origin
            )
        try:
            with closing(trainer):
                best = trainer.run()
                progress.close()
                _final_table(trainer, best)
        except KeyboardInterrupt:
            progress.close()
            if (folder / "config.json").exists():
                command = ("python", "train.py", "--resume", "--out", str(folder))
                progress.say(f"Go on with: {shlex.join(command)}")
            raise


def resolve(options: Options) -> tuple[TrainConfig, Path]:
    """The configuration and the folder that the options ask for.

    Raises:
        UserError: options that contradict each other, or a folder in use.
    """
    if options.resume:
        return _resolve_resumed(options)
    with user_input():
        if options.config is None:
            config = recipe(options.scenario or DEFAULT_SCENARIO)
        else:
            config = read_config(options.config)
        config = override(config, options)
    folder = options.out or default_folder(config.scenario)
    if (folder / "config.json").exists():
        raise UserError(
            f"{folder} already holds a run; add --resume to go on with it or choose another --out"
        )
    return config, folder


def default_folder(scenario: str) -> Path:
    """``runs/SCENARIO`` without odd characters; in a W&B sweep, one for each of its runs."""
    name = scenario.replace(":", "-").replace("/", "-")
    run_of_sweep = os.environ.get("WANDB_RUN_ID") if "WANDB_SWEEP_ID" in os.environ else None
    return Path("runs") / (f"{name}-{run_of_sweep}" if run_of_sweep else name)


def override(config: TrainConfig, options: Options) -> TrainConfig:
    """The configuration with the options that were given.

    Raises:
        UserError: options that contradict each other.
        ValueError: a value out of range.
    """

    def changed(part: Any, **values: Any) -> Any:
        given = {name: value for name, value in values.items() if value is not None}
        return dataclasses.replace(part, **given) if given else part

    if (options.jobs is None) != (options.machines is None):
        raise UserError("give --jobs and --machines together, or neither")
    sizes = None if options.jobs is None else ((options.jobs, options.machines),)
    groups = None
    if options.n_envs is not None or options.repeats is not None:
        repeats = config.repeats if options.repeats is None else options.repeats
        rows = config.groups * config.repeats if options.n_envs is None else options.n_envs
        if repeats < 1 or rows < 1 or rows % repeats:
            raise UserError(f"--n-envs ({rows}) must be a multiple of --repeats ({repeats})")
        groups = rows // repeats
    return changed(
        config,
        scenario=options.scenario,
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


def _resolve_resumed(options: Options) -> tuple[TrainConfig, Path]:
    """The run's own configuration; options that say the same are welcome, others are refused."""
    folder = options.out or default_folder(options.scenario or DEFAULT_SCENARIO)
    with user_input():
        config = read_config(folder / "config.json")
        for field in dataclasses.fields(options):
            value = getattr(options, field.name)
            free = field.name in FREE_ON_RESUME or field.name.startswith("wandb_")
            if free or value == field.default:
                continue
            names = ("jobs", "machines") if field.name in ("jobs", "machines") else (field.name,)
            alone = Options(**{name: getattr(options, name) for name in names})
            known = field.name not in ("config", "init")
            if not known or override(config, alone) != config:
                raise UserError(
                    f"--{field.name.replace('_', '-')} cannot change when a run is resumed; "
                    "leave it out"
                )
    return config, folder


def _sized_like(network: Any, config: TrainConfig, options: Options) -> TrainConfig:
    """The configuration with the network of the checkpoint that training starts from."""
    for name in ("hidden", "layers"):
        wanted = getattr(options, name)
        if wanted not in (None, getattr(network, name)):
            raise UserError(
                f"--{name} {wanted} does not fit --init, whose network has {getattr(network, name)}"
            )
    return dataclasses.replace(config, network=network)


def _final_table(trainer: Trainer, best: Path) -> None:
    from hetsched.agents.final import COUNT, SEED, final_size, final_table

    table = final_table(trainer, best)
    scenario, size = trainer.config.scenario, final_size(trainer)
    wanted = ("--scenario", scenario, "--jobs", str(size[0]), "--machines", str(size[1]))
    command = ("python", "evaluate.py", *wanted, "--policy", str(best), "--against", "all")
    shape = f"{size[0]} x {size[1]} (jobs x machines)"
    print(f"{scenario}: {COUNT} fresh instances of {shape}, seed {SEED}\n\n{table.text()}\n")
    print(f"best checkpoint: {best}")
    print(f"evaluate it:     {shlex.join(command)}")


if __name__ == "__main__":
    main()
