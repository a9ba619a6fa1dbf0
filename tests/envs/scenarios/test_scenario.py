"""Scenario, the registry and what holds for every scenario."""

import subprocess
import sys
import time

import numpy as np
import pytest

from hetsched.envs.instance import Instance
from hetsched.envs.objective import Objective
from hetsched.envs.scenarios import Scenario, get_scenario, sample_instances, scenario_names

NAMES = [name for name in scenario_names() if name != "own"]


def constant(rng: np.random.Generator, jobs: int, machines: int) -> Instance:
    return Instance.from_matrix(rng.integers(1, 10, (jobs, machines)))


def make(**changes: object) -> Scenario:
    fields: dict = {
        "name": "toy",
        "description": "",
        "objective": Objective(makespan=1.0),
        "deciding": "plan",
        "sampler": constant,
        "default_jobs": 3,
        "default_machines": 2,
        "rules": ("ect",),
        "sizes": ((3, 2),),
    }
    return Scenario(**{**fields, **changes})


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_generates_its_default_and_any_other_size(name: str) -> None:
    scenario = get_scenario(name)
    default = (scenario.default_jobs, scenario.default_machines)
    for jobs, machines in ((None, None), (1, 1), (2, 2), (5, 3), *scenario.sizes):
        instance = scenario.generate(np.random.default_rng(0), jobs, machines)
        count = instance.num_jobs
        if name == "fjsp":  # whose jobs are chains of the instance's jobs
            count -= instance.precedence.shape[1]
        assert (count, instance.num_machines) == (jobs or default[0], machines or default[1])


@pytest.mark.parametrize("name", NAMES)
def test_an_instance_depends_on_the_seed_and_its_index_only(name: str) -> None:
    scenario = get_scenario(name)
    many = sample_instances(scenario, 6, seed=3)
    few = sample_instances(scenario, 2, seed=3)
    assert all(one.same_as(other) for one, other in zip(few, many, strict=False))
    assert not many[0].same_as(many[1])
    assert not many[0].same_as(sample_instances(scenario, 1, seed=4)[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_instances_take_less_than_two_seconds(name: str) -> None:
    scenario = get_scenario(name)
    seconds = []
    for seed in range(4):  # the fastest counts: the machine may be busy with other things
        start = time.process_time()
        sample_instances(scenario, 200, seed)
        seconds.append(time.process_time() - start)
    assert min(seconds) * 5 < 2.0


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_names_itself_as_it_was_asked_for(name: str) -> None:
    scenario = get_scenario(name)
    assert scenario.name == name
    assert scenario.description
    assert scenario.rules


def test_an_unknown_name_is_told_the_nearest_and_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no scenario 'hitzgs'; did you mean 'hitzges'") as error:
        get_scenario("hitzgs")
    assert all(name in str(error.value) for name in scenario_names())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hitzges:jobs=3", "'hitzges' takes no options, got 'jobs'"),
        ("gpu-cluster:nois=1", "has no option 'nois'; did you mean 'noise'"),
        ("gpu-cluster:noise", "must read OPTION=VALUE"),
        ("gpu-cluster:", "must read OPTION=VALUE"),
        ("gpu-cluster:noise=1,noise=2", "given twice"),
        ("gpu-cluster:noise=-1", "option 'noise' must be a number of at least 0"),
        ("gpu-cluster:noise=nan", "option 'noise' must be a number of at least 0"),
        ("gpu-cluster:load=0", "option 'load' must be a number above 0"),
        ("gpu-cluster:load=2-1", "LOW <= HIGH"),
        ("gpu-cluster:max-duration=60", "option 'max-duration' must be a number above 60"),
        ("gpu-cluster:cluster=tpu", "no cluster 'tpu'; known: v100-p100-k80"),
        ("gpu-cluster-offline:noise=1", "has no option 'noise'"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        get_scenario(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deciding": "guess"}, "deciding must be 'plan' or 'dispatch', got 'guess'"),
        ({"default_jobs": 0}, "the default size is 0 jobs"),
        ({"sizes": ((3, 2), (3, 0))}, r"sizes\[1\] is 3 jobs x 0 machines"),
    ],
)
def test_a_wrong_field_of_a_scenario_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_sizes_counts_and_seeds_below_their_least_are_refused() -> None:
    scenario = make()
    with pytest.raises(ValueError, match="num_machines must be at least 1, got 0"):
        scenario.generate(np.random.default_rng(0), 3, 0)
    with pytest.raises(ValueError, match="count must not be negative"):
        sample_instances(scenario, -1, seed=0)
    with pytest.raises(ValueError, match="seed must not be negative"):
        sample_instances(scenario, 1, seed=-1)


def test_importing_the_scenarios_reads_no_table_and_no_heavy_library() -> None:
    code = (
        "import sys; import hetsched.envs.scenarios as s; "
        "from hetsched.envs.scenarios import tables; "
        "assert tables.speeds.cache_info().currsize == 0; "
        "assert not {'torch', 'scipy', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
