"""The YAML queue: what it says, and one sentence for every mistake."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hetsched.executor.protocol import Machine
from hetsched.executor.queue import Mode, Queue, QueueError
from hetsched.executor.queue_file import load_queue, parse_machines

MACHINES = """
machines:
  - {name: cpu, slots: 2}
  - {name: big, type: h200, device: GPU-0a1b}
  - {name: node, type: v100, devices: [0, 1, 2, 3]}
"""
SPEEDS = """\
model,machine,speed,gpus
resnet,h200,50,1
resnet,v100,10,1
resnet,v100,40,4
"""


def load(tmp_path: Path, text: str, machines: tuple[Machine, ...] | None = None) -> Queue:
    path = tmp_path / "queue.yaml"
    path.write_text(text, encoding="utf-8")
    (tmp_path / "speeds.csv").write_text(SPEEDS, encoding="utf-8")
    return load_queue(path, machines)


def one_job(tmp_path: Path, job: str, head: str = MACHINES) -> Queue:
    return load(tmp_path, f"{head}\njobs:\n  - {job}\n")


def test_a_full_queue_is_read(tmp_path: Path) -> None:
    queue = load(
        tmp_path,
        MACHINES
        + """
objective: mean(flow_time + weighted_tardiness)
grace: 1m
speeds: speeds.csv
defaults: {timeout: 2h, retries: 1, env: {LEVEL: 1, COLOUR: red}}
jobs:
  - name: train
    command: [python, train.py, --epochs, 3]
    model: resnet
    steps: 1000
    gpus: 1
    weight: 2
    due: 1.5h
    env: {COLOUR: blue}
    workdir: work
  - name: report
    command: make report > report.txt
    durations: {cpu: 90s, big: 30}
    after: train
    release: 10
    retries: 0
    timeout: 600
""",
    )
    train, report = queue.jobs
    assert train.command == ("python", "train.py", "--epochs", "3")
    assert train.modes == (Mode("big", 20.0), Mode("node", 100.0))
    assert (train.weight, train.due, train.timeout, train.retries) == (2.0, 5400.0, 7200.0, 1)
    assert dict(train.env) == {"LEVEL": "1", "COLOUR": "blue"}
    assert train.workdir == str(tmp_path / "work")
    assert report.command == "make report > report.txt"
    assert report.modes == (Mode("cpu", 90.0), Mode("big", 30.0))
    assert (report.after, report.release, report.retries) == (("train",), 10.0, 0)
    assert (report.timeout, report.due) == (600.0, math.inf)
    assert queue.grace == 60.0
    assert queue.objective == "mean(flow_time + weighted_tardiness)"
    assert queue.machines == (
        Machine("cpu", "cpu", "cpu", (), 2),
        Machine("big", "h200", "gpu", ("GPU-0a1b",), 1),
        Machine("node", "v100", "gpu", ("0", "1", "2", "3"), 4),
    )


def test_durations_of_a_machine_win_over_its_type_and_over_speeds(tmp_path: Path) -> None:
    queue = load(
        tmp_path,
        MACHINES
        + """
speeds: speeds.csv
jobs:
  - {name: a, command: x, model: resnet, steps: 10, durations: {h200: 9, big: 8}}
""",
    )
    assert queue.jobs[0].modes == (Mode("big", 8.0), Mode("node", 1.0), Mode("node", 0.25, 4))


def test_durations_alone_suffice_where_model_and_steps_are_for_other_things(
    tmp_path: Path,
) -> None:
    durations = "durations: {cpu: 5}"
    (shares,) = one_job(tmp_path, f"{{name: a, command: x, model: mine, {durations}}}").jobs
    assert (shares.model, shares.modes) == ("mine", (Mode("cpu", 5.0),))  # estimates are shared
    (counts,) = one_job(tmp_path, f"{{name: a, command: x, steps: 200, {durations}}}").jobs
    assert (counts.steps, counts.modes) == (200.0, (Mode("cpu", 5.0),))  # progress is out of 200


def test_a_model_runs_on_as_many_units_as_were_asked_for_or_measured(tmp_path: Path) -> None:
    head = MACHINES + "speeds: speeds.csv\n"
    model = "command: x, model: resnet, steps: 100"
    node = {"h200": Mode("big", 2.0), "one": Mode("node", 10.0), "four": Mode("node", 2.5, 4)}
    assert one_job(tmp_path, f"{{name: a, {model}}}", head).jobs[0].modes == tuple(node.values())
    queue = one_job(tmp_path, f"{{name: a, {model}, gpus: 4}}", head)
    assert queue.jobs[0].modes == (node["four"],)
    queue = one_job(tmp_path, f"{{name: a, {model}, demand: 1}}", head)
    assert queue.jobs[0].modes == (node["h200"], node["one"])
    with pytest.raises(QueueError, match="job 'a': durations give no seconds for any of the mach"):
        one_job(tmp_path, f"{{name: a, {model}, gpus: 2}}", head)


def test_a_gang_runs_only_where_it_fits_on_one_machine(tmp_path: Path) -> None:
    durations = "durations: {cpu: 1, h200: 1, v100: 1}"
    queue = one_job(tmp_path, f"{{name: a, command: x, gpus: 4, {durations}}}")
    assert queue.jobs[0].modes == (Mode("node", 1.0, 4),)
    queue = one_job(tmp_path, f"{{name: a, command: x, gpus: 0, {durations}}}")
    assert queue.jobs[0].modes == (Mode("cpu", 1.0, 1),)
    queue = one_job(tmp_path, f"{{name: a, command: x, demand: 2, {durations}}}")
    assert queue.jobs[0].modes == (Mode("cpu", 1.0, 2), Mode("node", 1.0, 2))


def test_other_machines_can_replace_those_of_the_file(tmp_path: Path) -> None:
    text = MACHINES + "jobs: [{name: a, command: x, durations: {h200: 2, cpu: 5}}]"
    queue = load(tmp_path, text, parse_machines("mine:h200@0"))
    assert queue.machines == (Machine("mine", "h200", "gpu", ("0",)),)
    assert queue.jobs[0].modes == (Mode("mine", 2.0),)


def test_machines_can_be_named_in_one_line(tmp_path: Path) -> None:
    assert parse_machines("a:h200@GPU-1-2, b@3*2,cpu@cpu*4") == (
        Machine("a", "h200", "gpu", ("GPU-1-2",)),
        Machine("b", "b", "gpu", ("3",), 2),
        Machine("cpu", "cpu", "cpu", (), 4),
    )
    path = tmp_path / "machines.yaml"
    path.write_text("[{name: a, slots: 3}]", encoding="utf-8")
    assert parse_machines(str(path)) == (Machine("a", capacity=3),)
    path.write_text("machines: [{name: a}]", encoding="utf-8")
    assert parse_machines(str(path)) == (Machine("a"),)
    with pytest.raises(QueueError, match=r"--machines: 'two gpus' cannot be read; write NAME"):
        parse_machines("two gpus")


def test_yaml_anchors_and_merges_work(tmp_path: Path) -> None:
    text = "jobs:\n- &a {name: a, command: x, durations: {cpu: 1}}\n- {<<: *a, name: b}"
    assert [job.name for job in load(tmp_path, MACHINES + text).jobs] == ["a", "b"]


OK = "command: x, durations: {cpu: 1}"
HUGE = "1" + "0" * 400  # no float holds it


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("{command: x}", r"jobs\[0\]: name is missing"),
        ("just text", r"jobs\[0\]: must be a mapping of keys to values, not str"),
        (f"{{name: a, {OK}, colour: red}}", "job 'a': unknown key 'colour'; use after, "),
        (f"{{name: a, {OK}, name: b}}", "line 8: key 'name' is given twice"),
        ("{name: a, durations: {cpu: 1}}", "job 'a': command is missing"),
        ("{name: a, command: [], durations: {cpu: 1}}", "job 'a': command is missing"),
        (
            "{name: a, command: [[x]], durations: {cpu: 1}}",
            r"job 'a': command holds \['x'\], more than a plain",
        ),
        ("{name: a, command: [x, true], durations: {cpu: 1}}", "job 'a': command holds True"),
        ("{name: a, command: true, durations: {cpu: 1}}", "job 'a': command is True; write it in"),
        (r'{name: a, command: "x\0y", durations: {cpu: 1}}', "job 'a': command holds a NUL char"),
        (f"{{name: null, {OK}}}", r"jobs\[0\]: name is None; give text"),
        (f"{{name: [a], {OK}}}", r"jobs\[0\]: name is \['a'\]; give text"),
        (f"{{name: a, {OK}, workdir: [x]}}", r"job 'a': workdir is \['x'\]; give text"),
        (f"{{name: a, {OK}, model: {{m: 1}}}}", "job 'a': model is {'m': 1}; give text"),
        (f"{{name: a, {OK}, after: null}}", "job 'a': after is None; give text"),
        (f"{{name: a, {OK}, env: {{'A=B': c}}}}", "job 'a': env 'A=B' is no name of a variable"),
        (f"{{name: a, {OK}, gpus: -1}}", "job 'a': gpus is -1; give 0 for a CPU machine"),
        (f"{{name: a, {OK}, [x]: 1}}", r"line 8: \['x'\] is no key; use a word"),
        (f"{{name: a, {OK}, due: 2025-99-99}}", "queue.yaml: no valid YAML .month must be in"),
        (f"{{name: a, {OK}, weight: {HUGE}}}", "job 'a': weight is too large a number"),
        (f"{{name: a, {OK}, steps: {HUGE}}}", "job 'a': steps is too large a number"),
        (f"{{name: a, {OK}, memory: {HUGE}}}", "job 'a': memory is too large a number"),
        (f"{{name: a, command: x, durations: {{cpu: {HUGE}}}}}", "'cpu' is too large a number"),
        ("{name: a, command: x, durations: {cpu: 1.0e+13}}", "give seconds above 0, at most 1e12"),
        (f"{{name: a, {OK}, weight: 1.0e+13}}", "job 'a': weight is .*; it must be a number from"),
        (f"{{name: a, {OK}, release: 1.0e+13}}", "job 'a': release is .*; it must be a number of"),
        (f"{{name: a, {OK}, due: -.inf}}", "job 'a': due is -inf; give seconds from"),
        (
            f"{{name: a, {OK}, priority: {10**20}}}",
            "job 'a': priority is 1000.*; it must be within",
        ),
        ("{name: a, command: x}", "job 'a': durations give no seconds for any of the machines"),
        ("{name: a, command: x, durations: 3}", "job 'a': durations: must be a mapping"),
        ("{name: a, command: x, durations: {gpu9: 1}}", "job 'a': durations names 'gpu9', which"),
        ("{name: a, command: x, durations: {cpu: soon}}", "durations on 'cpu' is 'soon'; give sec"),
        ("{name: a, command: x, durations: {cpu: 0}}", "job 'a': durations on 'cpu' is 0.0; give"),
        ("{name: a, command: x, model: resnet, steps: 1}", "model 'resnet' is not in the speeds"),
        (
            "{name: a, command: x, model: resnet}",
            "job 'a': steps is missing; give the model's steps",
        ),
        (f"{{name: a, {OK}, weight: -1}}", "job 'a': weight is -1.0; it must be a number from 0"),
        (f"{{name: a, {OK}, weight: heavy}}", "job 'a': weight is 'heavy'; give a number"),
        (f"{{name: a, {OK}, due: noon}}", "job 'a': due is 'noon'; give seconds, or text like"),
        (f"{{name: a, {OK}, due: .nan}}", "job 'a': due is nan; give seconds from the start"),
        (f"{{name: a, {OK}, release: -1}}", "job 'a': release is -1.0; it must be"),
        (f"{{name: a, {OK}, timeout: 0}}", "job 'a': timeout is 0.0; it must be above 0"),
        (f"{{name: a, {OK}, retries: 1.5}}", "job 'a': retries is 1.5; give a whole number"),
        (f"{{name: a, {OK}, retries: -1}}", "job 'a': retries is -1; it must be 0 or more"),
        (f"{{name: a, {OK}, env: [x]}}", "job 'a': env: must be a mapping"),
        (f"{{name: a, {OK}, env: {{X: yes}}}}", "job 'a': env X is True; write it in quotes"),
        (f"{{name: a, {OK}, env: {{CUDA_VISIBLE_DEVICES: 0}}}}", "job 'a': env sets CUDA_VISIBLE"),
        (f"{{name: a, {OK}, after: b}}", "job 'a': after names 'b', which is no job"),
        (f"{{name: a, {OK}, after: a}}", r"job 'a': after makes a circle \(a after a\)"),
        (f"{{name: a, {OK}, gpus: 1, demand: 1}}", "job 'a': gpus and demand exclude each other"),
        (f"{{name: a, {OK}, demand: 3}}", "job 'a': needs more units of one machine than the 2"),
        (f"{{name: a, {OK}, demand: 0}}", "job 'a': demand is 0; it must be at least 1"),
        ("{name: a, command: x, steps: 3}", "job 'a': steps without a model say nothing"),
        (f"{{name: a, {OK}, steps: 0}}", "job 'a': steps is 0; give a number above 0"),
        (f"{{name: {'a' * 81}, {OK}}}", "name must be 1 to 80 printable characters"),
    ],
)
def test_a_mistake_in_a_job_is_one_sentence(tmp_path: Path, job: str, message: str) -> None:
    with pytest.raises(QueueError, match=message) as caught:
        one_job(tmp_path, job)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "queue queue.yaml: must be a mapping of keys to values, not nothing"),
        ("jobs: [{", r"queue.yaml, line \d+: no valid YAML"),
        ("jobs: []", "queue queue.yaml: machines is missing"),
        (MACHINES, "queue queue.yaml: jobs is missing"),
        (MACHINES + "jobs: []", "queue: jobs is empty"),
        (MACHINES + "job: []", "queue queue.yaml: unknown key 'job'"),
        ("machines: 2\njobs: []", "machines: give a list of machines, not int"),
        ("machines: [{slots: 1}]\njobs: []", r"machines\[0\]: name is missing"),
        ("machines: [{name: a, slot: 1}]\njobs: []", r"machines\[0\]: unknown key 'slot'"),
        ("machines: [{name: a, slots: two}]\njobs: []", r"machines\[0\]: slots is 'two'"),
        ("machines: [{name: a, slots: 0}]\njobs: []", "machine 'a': slots is 0"),
        ("machines: [{name: a, kind: gpu}]\njobs: []", "machine 'a': 0 devices for 1 slots"),
        ("machines: [{name: a, device: 0, devices: [1]}]", r"machines\[0\]: device and devices"),
        ("machines: [{name: null}]", r"machines\[0\]: name is None; give text"),
        ("machines: [{name: a, device: {b: c}}]", r"machines\[0\]: devices is {'b': 'c'}; give"),
        ('machines: [{name: "a\\nb"}]', r"machine 'a\\nb': name must be at most 80 printable"),
        (
            "machines: [{name: a, slots: 2000000000}]",
            "machine 'a': slots is .*; it must be at most",
        ),
        (MACHINES + "speeds: none.csv\njobs: []", "speeds: cannot read .*none.csv: No such file"),
        (MACHINES + "defaults: {name: a}\njobs: []", "defaults: unknown key 'name'"),
        (MACHINES + "grace: -1\njobs: [{name: a, " + OK + "}]", "queue: grace is -1.0"),
        (
            MACHINES + f"jobs: [{{name: a, {OK}}}, {{name: a, {OK}}}]",
            "job 'a': name is used twice",
        ),
        (
            MACHINES + f"jobs: [{{name: a, {OK}, after: [b]}}, {{name: b, {OK}, after: [a]}}]",
            r"job 'a': after makes a circle \(a after b after a\)",
        ),
        (
            f"machines: [{{name: cpu}}, {{name: cpu}}]\njobs: [{{name: a, {OK}}}]",
            "machine 'cpu': name is used twice",
        ),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(QueueError, match=message) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_mistake_in_the_speeds_table_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(SPEEDS + "bert,h200,fast,1\n", encoding="utf-8")
    with pytest.raises(QueueError, match=r"speeds: .*bad.csv, line 5, column speed: 'fast' is not"):
        load(tmp_path, MACHINES + "speeds: bad.csv\njobs: []")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(QueueError, match=r"cannot read .*absent.yaml: No such file or directory"):
        load_queue(tmp_path / "absent.yaml")


def test_a_deep_chain_of_jobs_is_no_circle(tmp_path: Path) -> None:
    jobs = "\n".join(
        f"  - {{name: j{at}, {OK}, after: {[f'j{at - 1}'] if at else []}}}" for at in range(1500)
    )
    assert len(load(tmp_path, f"{MACHINES}\njobs:\n{jobs}").jobs) == 1500
