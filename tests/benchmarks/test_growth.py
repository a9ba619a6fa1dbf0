"""benchmarks/growth.py: what is counted, the laws that are fitted, going on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hetsched.agents.checkpoint import load_policy, save_checkpoint
from hetsched.agents.rules import make_rule
from hetsched.benchmarks import growth, growth_report
from hetsched.envs.instance import Instance
from hetsched.envs.scenarios import get_scenario
from hetsched.gnn.config import NetworkConfig
from hetsched.gnn.network import SchedulingNetwork

VARIANTS = "learned,learned:keep=2,learned:keep=2,together=0.5"


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """The command on tiny instances of hitzges, with an untrained policy."""
    torch.manual_seed(0)
    network = SchedulingNetwork(NetworkConfig(hidden=4, layers=1, heads=1))
    save_checkpoint(tmp_path / "a.safetensors", network, {"scenario": "hitzges"})

    def call(*arguments: str) -> dict[tuple[str, str, str], growth.Grown]:
        places = ("--results", str(tmp_path / "g.json"), "--picture", str(tmp_path / "g.png"))
        policy = ("--policy", str(tmp_path / "a.safetensors"))
        growth.main(
            ["--scenarios", "hitzges", "--variants", VARIANTS, *places, *policy, *arguments]
        )
        return growth.read(tmp_path / "g.json")

    return call


def test_edges_are_counted_while_their_jobs_are_open() -> None:
    instance = Instance.from_matrix([[3.0, 9.0], [9.0, 3.0]])
    scenario = get_scenario("rcmax")
    found = growth.decide(make_rule("min-min"), instance, scenario, 60.0)
    assert found is not None
    cost, seconds, decisions, edges, open_edges = found
    assert (cost, decisions, edges, open_edges) == (3.0, 2, 4, 3.0)  # four, then two
    assert seconds > 0
    fewer = load_policy("rcmax").quicker("fewer", keep=1)
    pruned = growth.decide(fewer, instance, scenario, 60.0)
    assert pruned is not None
    assert (pruned[0], pruned[2:]) == (3.0, (2, 2, 1.5))


def test_a_schedule_that_takes_too_long_is_given_up_until_the_limit_is_raised() -> None:
    scenario, rule = get_scenario("rcmax"), make_rule("lpt")
    row = growth.Grown("rcmax", "4x2", "lpt")
    assert growth.measure(row, rule, scenario, 2, 0.0)
    assert (row.limit, row.cost) == (0.0, [])
    assert not growth.measure(row, rule, scenario, 2, 0.0)
    assert growth.measure(row, rule, scenario, 2, 60.0)
    assert (row.limit, len(row.cost)) == (None, 1)


def test_a_run_goes_on_where_it_was(run: Any, tmp_path: Path, capsys: Any) -> None:
    sizes = ("--sizes", "3x2,6x3")
    first = run(*sizes, "--counts", "1,1")
    assert {len(row.cost) for row in first.values()} == {1}
    assert ("hitzges", "6x3", "learned:keep=2") in first
    assert ("hitzges", "6x3", "learned:keep=2,together=0.5") in first
    assert ("hitzges", "3x2", "learned:keep=2") not in first  # two modes are all there are
    more = run(*sizes, "--counts", "2,1")
    for key, row in first.items():
        assert more[key].cpu_seconds[:1] == row.cpu_seconds
    assert {key[1]: len(row.cost) for key, row in more.items()} == {"3x2": 2, "6x3": 1}
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
    laws = json.loads((tmp_path / "g.json").read_text())["laws"]
    assert {law["contender"] for law in laws} == {"atc", "allox", "min-min", "wspt", "learned"}
    assert "time ~ decisions^" in capsys.readouterr().out


def test_powers_and_costs_of_an_edge_are_recovered() -> None:
    x = np.array([10.0, 100.0, 1000.0])
    assert growth_report.exponent(x, 3 * x**2) == pytest.approx(2.0)
    assert growth_report.affine(x, 0.5 + 0.25 * x) == pytest.approx((0.5, 0.25))
    assert growth_report.affine(x, x - 5.0)[0] == 0.0  # nothing takes less than no time


def test_ratios_are_over_the_rule_with_the_least_mean_cost() -> None:
    kept = {}
    for name, checkpoint, cost in (
        *(("a", "", [4.0, 4.0]), ("b", "", [2.0, 8.0])),
        *(("learned", "x", [2.0, 1.0]), ("learned:keep=2", "x", [1.0])),
    ):
        row = growth.Grown("s", "3x2", name, checkpoint, cost=cost)
        kept[row.key] = row
    best, ratios = growth_report.ratios("s", "3x2", kept)
    assert best == "a"
    assert {name: one.tolist() for name, one in ratios.items()} == {
        "a": [1.0, 1.0], "b": [0.5, 2.0], "learned": [0.5, 0.25], "learned:keep=2": [0.25],
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ("--sizes", "3by2", "--counts", "1"),
        ("--counts", "1"),
        ("--variants", "learned:keep=0"),
        ("--draw-only",),
    ],
)
def test_mistakes_are_one_sentence(run: Any, arguments: tuple[str, ...], capsys: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err
