"""The table at the end of a training run: the best checkpoint against every rule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hetsched.agents.checkpoint import load_policy
from hetsched.agents.contenders import make_contender
from hetsched.agents.evaluation import Setting, measure
from hetsched.agents.table import COLUMNS, Table, build_table
from hetsched.envs.scenarios import sample_instances

if TYPE_CHECKING:
    from hetsched.agents.training import Trainer

COUNT = 200
SEED = 2_000_003  # neither of training nor of validation


def final_size(trainer: Trainer) -> tuple[int, int]:
    """(jobs, machines): the size of the training, or the scenario's own where it had several."""
    if len(set(trainer.sizes)) == 1:
        return trainer.sizes[0]
    return trainer.scenario.default_jobs, trainer.scenario.default_machines


def final_table(trainer: Trainer, best: Path) -> Table:
    """Compare on instances that neither training nor the choice of the checkpoint has seen."""
    scenario = trainer.scenario
    instances = sample_instances(scenario, COUNT, SEED, *final_size(trainer))
    setting = Setting(scenario.objective, scenario.deciding)
    policies = {"learned": load_policy(best)}
    names = ("learned", *scenario.rules)
    measured = [measure(make_contender(name, policies), instances, setting) for name in names]
    table = build_table(measured)
    rows = [row.cells() for row in table.rows]
    trainer.tracker.table("final", COLUMNS, rows)
    return table
