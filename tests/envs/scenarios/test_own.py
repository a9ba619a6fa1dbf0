"""own: the user's files, their mistakes, and resampling."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsched.envs.files import load_instance, load_set
from hetsched.envs.scenarios import get_scenario, sample_instances
from hetsched.envs.scenarios.own import own_instance
from hetsched.envs.scenarios.own_set import main

Write = Callable[..., tuple[str, str]]
EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "own"

SPEEDS = "model,machine,speed\nbert,fast,10\nbert,slow,2\nllm,fast,5\n"
JOBS = "name,model,work,arrival,due,weight\na,bert,100,0,,\nb,llm,50,5,40,3\nc,bert,20,15,65,\n"
MACHINES = "fast*1+slow*2"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_files(speeds: str = SPEEDS, jobs: str = JOBS) -> tuple[str, str]:
        (tmp_path / "speeds.csv").write_text(speeds)
        (tmp_path / "jobs.csv").write_text(jobs)
        return str(tmp_path / "speeds.csv"), str(tmp_path / "jobs.csv")

    return write_files


def test_a_duration_is_work_over_speed_and_absent_where_not_measured(write: Write) -> None:
    instance = own_instance(*write(), MACHINES)
    inf = np.inf
    expected = [[10, 50, 50], [10, inf, inf], [2, 10, 10]]
    assert instance.matrix().tolist() == expected
    assert instance.machine_names == ("fast-0", "slow-0", "slow-1")
    assert instance.job_names == ("a", "b", "c")
    assert instance.release_times.tolist() == [0, 5, 15]
    assert instance.due_times.tolist() == [inf, 40, 65]
    assert instance.weights.tolist() == [1, 3, 1]


def test_machines_may_come_from_a_file_and_have_several_gpus(write: Write, tmp_path: Path) -> None:
    machines = tmp_path / "machines.csv"
    machines.write_text("machine,count,capacity\nnode,1,4\n")
    speeds = "model,machine,speed,gpus\nllm,node,1,1\nllm,node,3,4\nllm,node,5,8\n"
    jobs = "name,model,work,gpus\nany,llm,12,\nbig,llm,12,4\n"
    instance = own_instance(*write(speeds, jobs), str(machines))
    assert instance.mode_jobs.tolist() == [0, 0, 1]
    assert instance.demand.tolist() == [1, 4, 4]  # 8 do not fit the node
    assert instance.processing_times.tolist() == [12, 4, 4]
    assert instance.capacity.tolist() == [4]


def test_the_startup_is_paid_once_and_remarks_are_not_read(write: Write) -> None:
    speeds = (
        "model,machine,speed,gpus,spread,startup,runs,note\n"
        'bert,fast,10,1,0.02,7.5,3,"power cap, varies"\nbert,slow,2,,,,,\nllm,fast,5,1,,0,,\n'
    )
    instance = own_instance(*write(speeds), MACHINES)
    inf = np.inf
    assert instance.matrix().tolist() == [[17.5, 50, 50], [10, inf, inf], [9.5, 10, 10]]


@pytest.mark.parametrize(
    ("speeds", "jobs", "machines", "message"),
    [
        ("model,machine\n", JOBS, MACHINES, "speeds.csv, line 1: column 'speed' is missing"),
        ("model,machine,speed,x\n", JOBS, MACHINES, "line 1: column 'x' is unknown; known: model"),
        ("model,machine,speed\n", JOBS, MACHINES, "speeds.csv has no rows"),
        (SPEEDS + "bert,fast,3\n", JOBS, MACHINES, "line 5, column model: .* given in line 2"),
        (SPEEDS + "gpt,fast,0\n", JOBS, MACHINES, "line 5, column speed: is 0; leave the row out"),
        (SPEEDS + "gpt,fast,-1\n", JOBS, MACHINES, "column speed: must be a finite number above 0"),
        (SPEEDS + "gpt,fast,x\n", JOBS, MACHINES, "column speed: 'x' is not a number"),
        (SPEEDS + "gpt,fast\n", JOBS, MACHINES, "line 5, column speed: has 2 values for 3 columns"),
        (SPEEDS + ",fast,1\n", JOBS, MACHINES, "line 5, column model: is empty"),
        (SPEEDS, "name,model,work\n", MACHINES, "jobs.csv has no rows"),
        (
            SPEEDS,
            JOBS + "d,berd,1,0,,\n",
            MACHINES,
            "jobs.csv, line 5, column model: 'berd' has no measured speed; did you mean 'bert'?",
        ),
        (SPEEDS, JOBS + "d,bert,,0,,\n", MACHINES, "line 5, column work: is empty"),
        (SPEEDS, JOBS + "d,bert,0,0,,\n", MACHINES, "line 5, column work: must be a finite"),
        (SPEEDS, JOBS + "d,bert,1,-2,,\n", MACHINES, "line 5, column arrival: must be"),
        (SPEEDS, JOBS, "slow*2", "jobs.csv, line 3, column model: no machine .* can run job 'b'"),
        (SPEEDS, JOBS, "fast*x", "machines: 'fast[*]x' must read TYPE[*]COUNT"),
        (SPEEDS, JOBS, "fast*0", "machines: 'fast[*]0' must read TYPE[*]COUNT"),
        (SPEEDS, JOBS, "fats*1", "machines: 'fats' has no measured speed; measured: fast, slow"),
        (SPEEDS, JOBS, "fast*1+fast*2", "machines: 'fast' is given twice"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_line_and_column(
    write: Write,
    speeds: str,
    jobs: str,
    machines: str,
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        own_instance(*write(speeds, jobs), machines)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*none\.csv: No such file"):
        own_instance(tmp_path / "none.csv", "jobs.csv", MACHINES)


def test_a_byte_order_mark_blank_lines_and_spaces_do_no_harm(write: Write) -> None:
    speeds = "\ufeffmodel, machine ,speed\n\nbert, fast ,10\nllm,fast,5\nbert,slow,2\n"
    assert own_instance(*write(speeds), MACHINES).num_modes == 7


def name_of(paths: tuple[str, str], *more: str) -> str:
    return ",".join([f"own:speeds={paths[0]}", f"jobs={paths[1]}", f"machines={MACHINES}", *more])


def test_the_scenario_keeps_models_slacks_and_the_rate_of_arrivals(write: Write) -> None:
    scenario = get_scenario(name_of(write()))
    assert (scenario.default_jobs, scenario.default_machines) == (3, 3)
    assert str(scenario.objective) == "makespan + weighted_tardiness"  # some jobs have due times
    slack = {"a": np.inf, "b": 35.0, "c": 50.0}
    gaps = []
    for instance in sample_instances(scenario, 200, seed=0, num_jobs=11):
        for job, name in enumerate(instance.job_names):
            expected = slack[name.split(" #")[0]]
            assert instance.due_times[job] - instance.release_times[job] == pytest.approx(expected)
        assert instance.release_times[0] == 0
        gaps.append(np.diff(instance.release_times))
    assert set(np.concatenate(gaps).tolist()) == {5, 10}
    assert np.mean(gaps) == pytest.approx(7.5, abs=0.2)  # the file's gaps are 5 and 10


def test_twice_the_machines_get_twice_the_arrivals_and_the_same_mix(write: Write) -> None:
    scenario = get_scenario(name_of(write()))
    instances = sample_instances(scenario, 200, seed=0, num_jobs=11, num_machines=6)
    names = [name.split("-")[0] for name in instances[0].machine_names]
    assert names == ["fast"] * 2 + ["slow"] * 4
    assert np.mean([np.diff(i.release_times) for i in instances]) == pytest.approx(3.75, abs=0.1)


def test_jobs_listed_together_stay_together(write: Write) -> None:
    scenario = get_scenario(name_of(write(jobs="name,model,work\na,bert,1\nb,llm,2\n")))
    instance = sample_instances(scenario, 1, seed=0, num_jobs=5)[0]
    assert instance.release_times.tolist() == [0] * 5
    assert str(scenario.objective) == "mean(flow_time)"


def test_objective_and_way_of_deciding_can_be_chosen(write: Write) -> None:
    more = "objective=2*makespan + flow_time", "deciding=plan"
    scenario = get_scenario(name_of(write(), *more))
    assert scenario.deciding == "plan"
    assert scenario.objective.makespan == 2
    with pytest.raises(ValueError, match="'deciding' must be plan or dispatch, got 'online'"):
        get_scenario(name_of(write(), "deciding=online"))


def test_own_without_its_files_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="'own' needs option 'speeds': own:speeds="):
        get_scenario("own")


def test_the_example_in_the_repository_is_valid() -> None:
    files = EXAMPLES / "speeds.csv", EXAMPLES / "jobs.csv", str(EXAMPLES / "machines.csv")
    instance = own_instance(*files)
    assert (instance.num_jobs, instance.num_machines) == (16, 5)


def test_the_command_writes_a_set_of_one_instance_or_an_instance(
    write: Write, tmp_path: Path
) -> None:
    paths = write()
    arguments = ["--speeds", paths[0], "--jobs", paths[1], "--machines", MACHINES, "--out"]
    assert main([*arguments, str(tmp_path / "own.npz")]) == 0
    assert main([*arguments, str(tmp_path / "own.json")]) == 0
    expected = own_instance(*paths, MACHINES)
    assert load_set(tmp_path / "own.npz").instances[0].same_as(expected)
    assert load_instance(tmp_path / "own.json").same_as(expected)


def test_the_command_reports_a_mistake_without_a_traceback(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = write(speeds="model,machine,speed\nbert,fast,x\n")
    out = tmp_path / "own.npz"
    arguments = ["--speeds", paths[0], "--jobs", paths[1], "--machines", MACHINES]
    assert main([*arguments, "--out", str(out)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "line 2, column speed: 'x' is not a number" in captured.err
    assert not out.exists()
