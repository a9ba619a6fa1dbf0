"""benchmarks/ablations.py: variants differ in one thing, runs are read right, networks as said."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hetsched.agents import ppo
from hetsched.agents.learned import LearnedPolicy
from hetsched.agents.metrics import read_curves
from hetsched.agents.policy import rollout
from hetsched.agents.rules import make_rule
from hetsched.benchmarks import ablations, ablations_networks, ablations_report
from hetsched.benchmarks import ablations_variants as variants
from hetsched.envs.features import observe
from hetsched.envs.problem import Problem
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.envs.simulator import State
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork


def test_every_variant_takes_as_many_decisions_and_changes_little_else() -> None:
    plain = variants.base(0, 10_000).to_dict()
    for one in variants.variants():
        config = one.config(0, 10_000)
        assert config.timesteps + config.warm_start.decisions == 10_000
        changed = {
            f"{name}.{inner}" if isinstance(value, dict) else name
            for name, value in config.to_dict().items()
            for inner in (value if isinstance(value, dict) else (name,))
            if (value[inner] if isinstance(value, dict) else value)
            != (plain[name][inner] if isinstance(value, dict) else plain[name])
        }
        known = {*one.changes, *({"sizes"} if one.growing else ())}
        assert changed - {"timesteps", "warm_start.decisions"} == known
        if {"groups", "repeats"} & set(one.changes):
            assert config.groups * config.repeats == 256


def test_growing_sizes_share_the_decisions_equally_and_end_with_the_largest() -> None:
    (growing,) = [one for one in variants.variants() if one.growing]
    config = growing.config(0, 120_000)
    taken = {size: config.sizes.count(size) * 64 * size[0] for size in variants.SIZES}
    assert list(dict.fromkeys(config.sizes)) == list(variants.SIZES)
    assert all(40_000 <= one <= 40_000 + 64 * 16 for one in taken.values())


def test_variants_have_folders_of_their_own() -> None:
    options = argparse.Namespace(runs=Path("runs"))
    every = [
        ablations._folder(one, seed, options) for one in variants.variants() for seed in (0, 1)
    ]
    assert len(set(every)) == len(every)


def states(count: int) -> State:
    scenario = get_scenario("hitzges")
    problem = Problem.from_instances(sample_instances(scenario, count, 5, 12, 4))
    return State.initial(problem, scenario.objective, scenario.deciding)


def test_an_untrained_residual_network_is_about_as_good_as_the_rule_it_adds_to() -> None:
    network = ablations_networks.ResidualNetwork(NetworkConfig(hidden=8, layers=1))
    residual = rollout(LearnedPolicy(network), states(40)).cost()
    rule = rollout(make_rule("atc:k=2"), states(40)).cost()
    plain = SchedulingNetwork(NetworkConfig(hidden=8, layers=1))
    untrained = rollout(LearnedPolicy(plain), states(40)).cost()
    assert float(residual.mean()) == pytest.approx(float(rule.mean()), rel=0.05)
    assert float(untrained.mean()) > 1.5 * float(rule.mean())
    graph = observe(states(3))
    assert torch.equal(network(graph)[0], network.scores(graph))


def test_the_blind_network_sees_no_modes() -> None:
    torch.manual_seed(0)
    size = NetworkConfig(hidden=8, layers=1)
    blind, plain = ablations_networks.BlindNetwork(size), SchedulingNetwork(size)
    for network in (blind, plain):
        torch.nn.init.normal_(network.mode_score.weight)
    graph = observe(states(3))
    other = dataclasses.replace(graph, modes=graph.modes + 1.0)
    legal = graph.legal
    assert torch.equal(blind.scores(graph)[legal], blind.scores(other)[legal])
    assert torch.equal(blind(graph)[0][legal], blind(other)[0][legal])
    assert not torch.equal(plain.scores(graph)[legal], plain.scores(other)[legal])


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a second."""
    large = variants.base

    def base(seed: int, decisions: int) -> Any:
        config = large(seed, decisions)
        return dataclasses.replace(
            config,
            sizes=((4, 2),),
            groups=2,
            repeats=2,
            eval_count=2,
            network=NetworkConfig(hidden=4, layers=1),
            warm_start=dataclasses.replace(config.warm_start, instances=2, moves_per_job=50),
            ppo=dataclasses.replace(config.ppo, n_steps=4, batch_size=8, n_epochs=1),
        )

    monkeypatch.setattr(variants, "base", base)
    monkeypatch.setattr(ppo, "SchedulingNetwork", SchedulingNetwork)  # and afterwards as before


def test_a_run_is_trained_kept_and_drawn(tiny: None, tmp_path: Path, capsys: Any) -> None:
    paths = {"runs": tmp_path / "runs", "results": tmp_path / "a.json", "picture": tmp_path / "p"}
    for name in ("base", "residual over atc"):
        words = [str(word) for key, path in paths.items() for word in (f"--{key}", path)]
        ablations.main(["--run", name, "--decisions", "64", *words])
    assert vars(ppo)["SchedulingNetwork"] is ablations_networks.ResidualNetwork
    ablations.main(["--decisions", "64", "--seeds", "1", "--draw-only", *words])
    curves = json.loads((tmp_path / "a.json").read_text())["curves"]
    assert [one["variant"] for one in curves] == ["base", "residual over atc"]
    for one in curves:
        assert one["decisions"][0] == 0
        assert one["decisions"][-1] >= 64
        assert one["cpu_seconds"] == sorted(one["cpu_seconds"])
        assert one["cpu_seconds"][-1] > 0
    assert (tmp_path / "p").read_bytes().startswith(b"\x89PNG")
    assert "residual over atc" in capsys.readouterr().out


def test_all_variants_are_validated_on_the_same_instances(tiny: None, tmp_path: Path) -> None:
    one = variants.Variant("other", "", {"sizes": ((5, 3),)})
    ablations.train_one(one, 0, 64, tmp_path / "other")
    same = variants.Variant("same", "", {"sizes": variants.SIZES})
    ablations.train_one(same, 0, 64, tmp_path / "same")
    first = [
        read_curves(tmp_path / name / "metrics.csv")["validation/rule_cost"][1][-1]
        for name in ("other", "same")
    ]
    assert first[0] == first[1]


def test_curves_join_validations_and_cpu_seconds(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(
        f"step,{ablations_report.RATIO},loss\n0,2.0,\n10,,0.5\n20,1.5,0.4\n"
    )
    (tmp_path / "cpu_seconds.csv").write_text("10,1.0\n20,9.0\n20,3.0\n")  # resumed at 20
    curve = ablations_report.read_curve(tmp_path, "base", 1, 20)
    assert (curve.decisions, curve.ratio, curve.cpu_seconds) == ([0, 20], [2.0, 1.5], [0.0, 3.0])
    other = dataclasses.replace(curve, seed=2, ratio=[2.0, 1.3, 1.4], decisions=[0, 20, 40],
                                cpu_seconds=[0.0, 3.0, 5.0])  # fmt: skip
    row = ablations_report.rows([curve, other])[0]
    assert (row.best, row.last, row.cpu_seconds) == pytest.approx((1.4, 1.45, 4.0))
    assert row.spread == pytest.approx(np.std([1.5, 1.4], ddof=1))
    assert row.trainings == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--variants", "none-such"], "none-such"),
        (["--variants", "("], "is no regular expression"),
        (["--draw-only"], "no finished runs"),
        (["--draw-only", "--results", "DAMAGED"], "cannot be read; give another --results"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.json"
    damaged.write_text("{")
    places = ["--runs", str(tmp_path), "--results", str(tmp_path / "none.json")]
    with pytest.raises(SystemExit) as caught:
        ablations.main([*places, *(one.replace("DAMAGED", str(damaged)) for one in arguments)])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
