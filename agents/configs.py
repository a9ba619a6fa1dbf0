"""Options of the two ways of training; light to import."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite


def check_whole(config: object, least: int, *names: str) -> None:
    """Refuse fields of a configuration that are no whole numbers of at least ``least``.

    Raises:
        ValueError: one sentence naming the field.
    """
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name} must be a whole number, got {value!r}")
        if value < least:
            least_said = f"at least {least}" if least else "0 or more"
            raise ValueError(f"{name} must be {least_said}, got {value}")


def check_text(config: object, *names: str) -> None:
    """Refuse fields of a configuration that are no words.

    Raises:
        ValueError: one sentence naming the field.
    """
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, str) or not value:
            raise ValueError(f"{name} must be a word, got {value!r}")


def check_range(config: object, low: float, high: float, *names: str) -> None:
    """Refuse fields of a configuration that are no numbers in ``low..high``.

    Raises:
        ValueError: one sentence naming the field.
    """
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int | float) or not low <= value <= high:
            within = f"lie in {low:g}..{high:g}" if isfinite(high) else f"be {low:g} or more"
            raise ValueError(f"{name} must {within}, got {value!r}")


def check_positive(config: object, *names: str) -> None:
    """Refuse fields of a configuration that are no positive, finite numbers.

    Raises:
        ValueError: one sentence naming the field.
    """
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise ValueError(f"{name} must be positive, got {value!r}")


@dataclass(frozen=True)
class ImitationConfig:
    """Supervised warm start.

    Attributes:
        decisions: labelled decisions to learn from; 0 skips the warm start.
        teacher: ``"annealing"`` (plans), or the name of a rule.
        instances: drawn per round.
        moves_per_job: annealing effort per job.
        learning_rate: at the start; falls along a cosine to a hundredth.
        batch_size: decisions per gradient step.
        epochs: passes over the decisions of a round.
        explore: share of the instances that the student walks through in its own way, so that it
            learns to mend its own mistakes (DAgger, Ross et al. 2011); reached half-way.
    """

    decisions: int = 0
    teacher: str = "annealing"
    instances: int = 64
    moves_per_job: int = 1500
    learning_rate: float = 1.5e-3
    batch_size: int = 512
    epochs: int = 2
    explore: float = 0.5

    def __post_init__(self) -> None:
        check_text(self, "teacher")
        check_whole(self, 0, "decisions")
        check_whole(self, 1, "instances", "moves_per_job", "batch_size", "epochs")
        check_positive(self, "learning_rate")
        check_range(self, 0, 1, "explore")


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation (Schulman et al. 2017), as stable-baselines3 names its options.

    Attributes:
        n_steps: decisions per row and rollout.
        batch_size: decisions per gradient step.
        n_epochs: passes over a rollout.
        learning_rate: at the start; falls linearly to a tenth.
        clip_range: of the probability ratio.
        ent_coef, vf_coef: weights of the entropy bonus and of the value loss.
        gae_lambda: of generalised advantage estimation; gamma is 1, as rewards add up to the cost.
        max_grad_norm: gradient clipping.
        target_kl: an epoch stops beyond 1.5 times this divergence.
        outlook_moves: annealing effort per job behind every reward (plans only): a decision is paid
            for what it does to the best cost that annealing sees from there; 0: for what it does
            to a lower bound.
    """

    n_steps: int = 40
    batch_size: int = 1024
    n_epochs: int = 4
    learning_rate: float = 3e-4
    clip_range: float = 0.2
    ent_coef: float = 0.003
    vf_coef: float = 0.5
    gae_lambda: float = 0.98
    max_grad_norm: float = 0.5
    target_kl: float = 0.03
    outlook_moves: int = 0

    def __post_init__(self) -> None:
        check_whole(self, 1, "n_steps", "n_epochs")
        check_whole(self, 0, "outlook_moves")
        check_whole(self, 2, "batch_size")  # one advantage alone cannot be normalised
        check_positive(self, "learning_rate", "clip_range", "max_grad_norm", "target_kl")
        check_range(self, 0, float("inf"), "ent_coef", "vf_coef")
        check_range(self, 0, 1, "gae_lambda")
