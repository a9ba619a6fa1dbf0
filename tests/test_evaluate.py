"""The command: its table, files and pictures, and one sentence for every mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hetsched.agents.searchers import Searched
from hetsched.envs.scenarios import get_scenario
from hetsched.evaluate import build_parser, main, make_contenders

if TYPE_CHECKING:
    from pathlib import Path

TINY = ("--scenario", "hitzges", "--jobs", "4", "--machines", "2", "--count", "3")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained policy for hitzges."""
    import torch

    from hetsched.agents.checkpoint import save_checkpoint
    from hetsched.envs.scenarios import get_scenario
    from hetsched.gnn.config import NetworkConfig
    from hetsched.gnn.network import SchedulingNetwork

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("run") / "best.safetensors"
    objective = str(get_scenario("hitzges").objective)
    save_checkpoint(
        path, SchedulingNetwork(NetworkConfig()), {"scenario": "hitzges", "objective": objective}
    )
    return path


def lines_of(text: str) -> dict[str, list[str]]:
    """First word -> the other words of each line."""
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}


def test_rules_are_compared_without_any_policy(capsys: pytest.CaptureFixture[str]) -> None:
    main([*TINY, "--against", "ect,atc:k=2,random"])
    out = capsys.readouterr().out
    assert "3 instances of 4 x 2 (jobs x machines)" in out
    assert "cost = makespan + weighted_tardiness + machine_tardiness" in out
    rows = lines_of(out)
    assert {"ect", "atc:k=2", "random"} <= rows.keys()
    assert any(row[1:5] == ["1.0000", "0.0000", "1.0000", "0.0000"] for row in rows.values())


def test_all_means_the_rules_of_the_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    from hetsched.envs.scenarios import get_scenario

    main([*TINY, "--against", "all,ect"])
    rows = lines_of(capsys.readouterr().out)
    assert {*get_scenario("hitzges").rules, "ect"} <= rows.keys()


def test_the_json_has_the_published_form(tmp_path: Path, checkpoint: Path) -> None:
    path = tmp_path / "out.json"
    main([*TINY, "--policy", str(checkpoint), "--samples", "4", "--against", "atc",
          "--cp-sat", "5", "--reference", "cp-sat@5", "--json", str(path)])  # fmt: skip
    result = json.loads(path.read_text())
    assert list(result) == ["scenario", "objective", "count", "policies", "reference"]
    assert (result["scenario"], result["count"]) == ("hitzges", 3)
    assert list(result["policies"]) == ["learned", "learned@4", "atc", "cp-sat@5"]
    for policy in result["policies"].values():
        assert list(policy) == ["cost", "seconds"]
        assert len(policy["cost"]) == len(policy["seconds"]) == 3
        assert min(policy["seconds"]) > 0
    assert list(result["reference"]) == ["cp-sat@5"]
    costs = {name: np.array(policy["cost"]) for name, policy in result["policies"].items()}
    assert (costs["learned@4"] <= costs["learned"]).all()
    for cost in costs.values():
        assert (costs["cp-sat@5"] <= cost + 1e-9).all()


def test_the_same_command_gives_the_same_costs(tmp_path: Path, checkpoint: Path) -> None:
    results = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.json"
        main([*TINY, "--policy", str(checkpoint), "--samples", "3", "--json", str(path)])
        policies = json.loads(path.read_text())["policies"]
        results.append({name: policy["cost"] for name, policy in policies.items()})
    assert results[0] == results[1]


def test_several_checkpoints_are_named_by_their_files(
    tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.safetensors"
    other.write_bytes(checkpoint.read_bytes())
    main([*TINY, "--against", "none", "--samples", "2",
          "--policy", str(checkpoint), "--policy", str(other)])  # fmt: skip
    rows = lines_of(capsys.readouterr().out)
    assert {"best", "other", "best@2", "other@2"} <= rows.keys()
    assert rows["best"][:5] == rows["other"][:5]


def test_the_gantt_is_a_picture_and_a_page(
    tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*TINY, "--policy", str(checkpoint), "--gantt", str(tmp_path / "gantt")])
    assert "the schedule of learned" in capsys.readouterr().out
    assert (tmp_path / "gantt.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "gantt.html").read_text()


@pytest.fixture
def tiny_set(tmp_path: Path) -> Path:
    """Two instances whose optimal makespans are 3 and 2."""
    path = tmp_path / "set.npz"
    np.savez(
        path,
        processing_times=np.array([[[3, 9], [9, 3]], [[2, 2], [2, 2]]]),
        reference_optimum=np.array([3.0, 2.0]),
        reference_proven=np.array([True, True]),
    )
    return path


def test_a_set_brings_its_references_and_its_own_objective(
    tiny_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    main(["--scenario", "hitzges", "--file", str(tiny_set), "--objective", "makespan",
          "--against", "min-min", "--json", str(path)])  # fmt: skip
    out = capsys.readouterr().out
    assert "optimum (file)" in out
    assert "ratio: mean of cost / optimum" in out
    assert "proven" not in out
    result = json.loads(path.read_text())
    assert result["policies"]["min-min"]["cost"] == [3.0, 2.0]
    assert result["reference"] == {"optimum": [3.0, 2.0]}
    assert result["objective"] == "makespan"


def test_dispatch_marks_what_knows_the_future(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--scenario", "gpu-cluster", "--jobs", "4", "--machines", "2", "--count", "2",
          "--policy", str(checkpoint), "--samples", "2", "--against", "ect-wait"])  # fmt: skip
    captured = capsys.readouterr()
    assert "learned@2*" in captured.out
    assert "* decided in hindsight" in captured.out
    assert "note: learned was trained for makespan" in captured.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--scenario", "hitzgess"), "did you mean 'hitzges'"),
        ((*TINY, "--against", "atd"), "--against: no rule is called 'atd'; did you mean 'atc'"),
        (
            ("--scenario", "gpu-cluster", "--against", "atc+beam@4"),
            "'atc+beam@4' can only plan; in gpu-cluster ask for 'atc@4'",
        ),
        ((*TINY, "--policy", "none-such"), "neither a file nor a shipped policy"),
        ((*TINY, "--policy", "x.safetensors"), "there is no checkpoint at x.safetensors"),
        ((*TINY, "--samples", "4"), "add --policy"),
        ((*TINY, "--temperature", "2"), "--temperature is that of samples; add --samples K"),
        ((*TINY, "--device", "meta"), "--device meta: use cpu or cuda"),
        ((*TINY, "--json", "."), "--json: '.' is a folder; name a file"),
        ((*TINY, "--against", "none"), "nothing to measure"),
        ((*TINY, "--cp-sat", "0"), "--cp-sat: the time limit of CP-SAT must be above 0"),
        ((*TINY, "--reference", "optimal"), "no reference is called 'optimal'; known: atc"),
        ((*TINY, "--objective", "makespam"), "--objective: "),
        ((*TINY, "--device", "abacus"), "--device abacus: use cpu or cuda"),
        ((*TINY, "--threads", "0"), "--threads is 0; give 1 or more"),
        ((*TINY, "--count", "0"), "--count is 0; give 1 or more"),
        ((*TINY, "--batch", "0"), "--batch is 0; give 1 or more"),
        ((*TINY, "--seed", str(2**64)), "give 0 or more, below 2**63"),
        ((*TINY, "--seed", "-1"), "--seed is -1; give 0 or more"),
        ((*TINY, "--json", "no/such/folder.json"), "--json: there is no folder 'no/such'"),
        (("--scenario", "hitzges", "--file", "none.npz"), "--file: "),
        ((*TINY, "--file", "none.npz"), "make no sense with --file"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(
    options: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(options)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1


def test_a_checkpoint_cannot_take_the_name_of_a_rule(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "atc.safetensors").write_bytes(checkpoint.read_bytes())
    paths = [str(tmp_path / "atc.safetensors"), str(checkpoint)]
    with pytest.raises(SystemExit) as caught:
        main([*TINY, "--policy", *paths])
    assert caught.value.code == 2
    assert "--policy: 'atc' is the name of another contender" in capsys.readouterr().err


def test_a_search_by_name_starts_from_the_scenarios_rules_as_the_option_does() -> None:
    scenario = get_scenario("hitzges")
    against = ("--against", "atc:k=1@2,atc+search@1s")
    args = build_parser().parse_args([*TINY, *against, "--search-seconds", "1"])
    option, _, name = make_contenders(args, scenario, scenario.objective)
    assert isinstance(option, Searched)
    assert isinstance(name, Searched)
    assert [rule.name for rule in name.rules] == [rule.name for rule in option.rules]
    assert [rule.name for rule in name.rules] == list(scenario.rules)


def test_more_instances_than_the_set_holds_are_refused(
    tiny_set: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--scenario", "hitzges", "--file", str(tiny_set), "--count", "5"])
    assert "holds 2" in capsys.readouterr().err


def test_plans_refuse_durations_that_nobody_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "noisy.npz"
    times = np.ones((1, 2, 2))
    np.savez(path, processing_times=times, actual_times=2 * times)
    with pytest.raises(SystemExit):
        main(["--scenario", "hitzges", "--file", str(path)])
    assert "take a scenario that dispatches" in capsys.readouterr().err


def test_help_is_instant_because_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, hetsched.evaluate as e; e.build_parser().format_help();"
        "heavy = {'torch', 'numpy', 'matplotlib', 'ortools'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_published_atc_costs_come_out(data_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    main(["--scenario", "hitzges", "--file", str(data_dir / "hitzges" / "8x4.npz"),
          "--count", "40", "--against", "atc:k=2,atc-grid", "--json", str(path)])  # fmt: skip
    result = json.loads(path.read_text())
    assert result["policies"]["atc:k=2"]["cost"] == result["reference"]["atc_k2"]
    assert result["policies"]["atc-grid"]["cost"] == result["reference"]["atc_best_of_5"]
