"""Contenders by name, portfolios and samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from hetsched.agents import sampling
from hetsched.agents.checkpoint import load_policy
from hetsched.agents.contenders import (
    PORTFOLIOS,
    OnePolicy,
    make_contender,
    policy_names,
    split_names,
)
from hetsched.agents.evaluation import Setting, measure
from hetsched.agents.rules import make_rule
from hetsched.agents.sampling import BestOfSamples
from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios import get_scenario, sample_instances

if TYPE_CHECKING:
    from torch import Tensor

    from hetsched.envs.simulator import State

PLAN = Setting(Objective(makespan=1.0, weighted_tardiness=1.0), "plan", seed=3)


class Fastest:
    """Prefers short modes a little, so that its samples vary."""

    name = "fastest"

    def scores(self, state: State) -> Tensor:
        times = state.problem.processing_times.clamp(max=1e6).flatten(1)
        return torch.cat([-0.1 * times, -100 * torch.ones(len(times), 1)], dim=1)


@pytest.fixture
def instances() -> list[Instance]:
    rng = np.random.default_rng(0)
    return [
        Instance.from_matrix(rng.integers(1, 20, (jobs, 3)), due_times=rng.integers(0, 30, jobs))
        for jobs in (4, 6, 5, 6)
    ]


def test_a_portfolio_is_the_best_of_its_rules_on_each_instance(instances: list[Instance]) -> None:
    portfolio = measure(make_contender("atc-grid"), instances, PLAN)
    each = [measure(make_contender(name), instances, PLAN) for name in PORTFOLIOS["atc-grid"]]
    assert portfolio.costs.tolist() == np.min([one.costs for one in each], axis=0).tolist()
    assert (portfolio.seconds > 0).all()


@pytest.mark.parametrize("name", sorted(PORTFOLIOS))
def test_the_rules_of_every_portfolio_exist(name: str) -> None:
    for rule in PORTFOLIOS[name]:
        assert make_rule(rule).name == rule


def test_samples_are_never_worse_than_greedy_and_more_are_never_worse(
    instances: list[Instance],
) -> None:
    greedy = measure(OnePolicy(Fastest()), instances, PLAN).costs
    one, many = (measure(BestOfSamples(Fastest(), k), instances, PLAN) for k in (1, 64))
    assert one.costs.tolist() == greedy.tolist()
    assert (many.costs <= greedy).all()
    assert (many.costs < greedy).any()
    assert many.name == "fastest@64"


def test_samples_repeat_with_the_seed(instances: list[Instance]) -> None:
    first, again = (measure(BestOfSamples(Fastest(), 4), instances, PLAN) for _ in range(2))
    assert first.costs.tolist() == again.costs.tolist()


def test_samples_that_do_not_fit_one_batch_are_drawn_in_parts(
    instances: list[Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "MAX_EDGES", 3 * len(instances) * 18)  # 3 samples of each
    result = measure(BestOfSamples(Fastest(), 8), instances, PLAN)
    assert (result.costs <= measure(OnePolicy(Fastest()), instances, PLAN).costs).all()
    assert result.decisions.tolist() == [one.num_jobs for one in instances]


def test_contenders_are_found_by_name() -> None:
    policies = {"learned": Fastest()}
    kinds = {
        name: (make_contender(name, policies).kind, make_contender(name, policies).name)
        for name in (
            *("learned", "learned@16", "cp-sat@0.5", "atc:k=0.5", "atc-grid", "atc:k=1@8"),
            *("annealing@1s", "learned+search@2", "atc+search@0.5s", "learned+cp-sat@3"),
        )
    }
    assert kinds == {
        "learned": ("policy", "fastest"),
        "learned@16": ("policy", "fastest@16"),
        "cp-sat@0.5": ("solver", "cp-sat@0.5"),
        "atc:k=0.5": ("rule", "atc:k=0.5"),
        "atc-grid": ("portfolio", "atc-grid"),
        "atc:k=1@8": ("policy", "atc:k=1@8"),
        "annealing@1s": ("search", "annealing@1s"),
        "learned+search@2": ("search", "learned+search@2"),
        "atc+search@0.5s": ("search", "atc+search@0.5s"),
        "learned+cp-sat@3": ("solver", "fastest+cp-sat@3"),
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("atd", "did you mean 'atc'"),
        ("other@4", "before the @ goes one of annealing, cp-sat, learned, or a rule"),
        ("learned+search@0", "time to search must be above 0"),
        ("annealing@soon", "needs a number behind the @"),
        ("other+search@1", "asks for 'other'"),
        ("learned@many", "needs a number behind the @"),
        ("learned@2.5", "whole number"),
        ("learned@inf", "whole number"),
        ("learned@0", "at least 1"),
        ("cp-sat@0", "above 0"),
        ("cp-sat@nan", "above 0"),
        ("cp-sat@inf", "above 0"),
    ],
)
def test_a_wrong_name_is_refused_with_a_sentence(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_contender(name, {"learned": Fastest()})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ect,atc", ("ect", "atc")),
        ("ect, atc ,", ("ect", "atc")),
        ("atcs-r:k1=2,k2=1,atc", ("atcs-r:k1=2,k2=1", "atc")),
        ("atc:k=1,atc:k=2", ("atc:k=1", "atc:k=2")),
        ("ect,ect", ("ect",)),
        ("", ()),
    ],
)
def test_commas_inside_parameters_do_not_separate(text: str, names: tuple[str, ...]) -> None:
    assert split_names(text) == names


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/a/best.safetensors"], ("learned",)),
        (["hitzges.safetensors", "runs/b.safetensors"], ("hitzges", "b")),
        (["runs/a/best.safetensors", "runs/b/best.safetensors"], ("a/best", "b/best")),
        (["a.safetensors", "a.safetensors"], ("learned", "learned")),
    ],
)
def test_policies_are_named_by_what_tells_their_files_apart(
    paths: list[str], names: tuple[str, ...]
) -> None:
    assert policy_names([Path(path) for path in paths]) == names


@pytest.mark.parametrize(("name", "temperature"), [("hitzges", 2.0), ("atc", 0.25)])
def test_networks_and_rules_have_temperatures_of_their_own(name: str, temperature: float) -> None:
    instances = sample_instances(get_scenario("hitzges"), 4, 0, 15, 3)
    policy = make_rule(name) if name == "atc" else load_policy(name)
    own, same, other = (
        measure(BestOfSamples(policy, 4, one), instances, PLAN).costs.tolist()
        for one in (None, temperature, 50.0)
    )
    assert own == same
    assert own != other


def test_a_learned_policy_may_keep_the_fastest_modes_of_every_job() -> None:
    scenario = get_scenario("hitzges")
    instances = sample_instances(scenario, 3, 0, 12, 5)
    setting = Setting(scenario.objective, "plan")
    policies = {"learned": load_policy("hitzges")}

    def costs(name: str) -> list[float]:
        return measure(make_contender(name, policies), instances, setting).costs.tolist()

    assert costs("learned:keep=5") == costs("learned")
    alone = measure(make_contender("learned:keep=1", policies), instances, setting)
    for instance, schedule in zip(instances, alone.schedules, strict=True):
        assert schedule is not None
        chosen = instance.processing_times[schedule.modes]
        fastest = [instance.processing_times[instance.mode_jobs == job].min() for job in range(12)]
        assert chosen.tolist() == fastest
    assert all(
        more <= one
        for more, one in zip(costs("learned:keep=2@8"), costs("learned:keep=2"), strict=True)
    )
    assert make_contender("learned:keep=2@8", policies).name == "learned:keep=2@8"


@pytest.mark.parametrize(
    "name",
    ["learned:together=0.5", "learned:keep=2,together=1", "learned:keep=2,together=0.5@4"],
)
def test_a_learned_policy_may_decide_about_several_jobs_at_one_look(name: str) -> None:
    scenario = get_scenario("hitzges")
    instances = sample_instances(scenario, 3, 0, 12, 5)
    contender = make_contender(name, {"learned": load_policy("hitzges")})
    found = measure(contender, instances, Setting(scenario.objective, "plan"))
    assert found.name == name
    assert found.decisions.tolist() == [12, 12, 12]
    assert (found.seconds > 0).all()
    assert split_names(f"atc,{name}") == ("atc", name)


@pytest.mark.parametrize(
    "name",
    ["keep=0", "keep=x", "k=2", "@4", "keep=2,", "together=-1", "together=1.5", "together=x"],
)
def test_what_a_learned_policy_cannot_do_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"keep|together"):
        make_contender(f"learned:{name}", {"learned": load_policy("hitzges")})
