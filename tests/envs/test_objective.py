"""Objectives: values, the text form, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.envs.objective import TERMS, Objective

WEIGHTS = st.floats(0, 1e12, allow_subnormal=False)


@st.composite
def objectives(draw: st.DrawFn) -> Objective:
    weights = {name: draw(WEIGHTS) for name in draw(st.sets(st.sampled_from(TERMS), min_size=1))}
    weights[draw(st.sampled_from(TERMS))] = draw(WEIGHTS.filter(lambda one: one > 0))
    return Objective(**weights, per_job=draw(st.booleans()))


def test_the_cost_is_the_weighted_sum_of_the_terms() -> None:
    objective = Objective(makespan=1, weighted_tardiness=2)
    assert objective.value({"makespan": 10.0, "weighted_tardiness": 3.0}, num_jobs=4) == 16.0


def test_a_mean_is_divided_by_the_number_of_jobs() -> None:
    assert Objective(flow_time=1, per_job=True).value({"flow_time": 12.0}, num_jobs=4) == 3.0


def test_the_value_of_arrays_is_an_array() -> None:
    value = Objective(makespan=2).value({"makespan": np.array([1.0, 2.0])}, num_jobs=4)
    assert value.tolist() == [2.0, 4.0]


def test_terms_without_weight_need_no_value() -> None:
    assert Objective(makespan=1).value({"makespan": 5.0}, num_jobs=1) == 5.0
    with pytest.raises(ValueError, match="the term flow_time is missing; give its value"):
        Objective(flow_time=1).value({"makespan": 5.0}, num_jobs=1)


def test_the_active_terms_are_those_with_weight() -> None:
    assert Objective(flow_time=1, makespan=1).active_terms() == ("makespan", "flow_time")


@pytest.mark.parametrize(
    ("text", "objective"),
    [
        ("makespan", Objective(makespan=1)),
        ("makespan + 2*weighted_tardiness", Objective(makespan=1, weighted_tardiness=2)),
        (" .5 * setup_time+1e-3*flow_time ", Objective(setup_time=0.5, flow_time=0.001)),
        ("mean(flow_time)", Objective(flow_time=1, per_job=True)),
        ("mean( makespan + flow_time )", Objective(makespan=1, flow_time=1, per_job=True)),
    ],
)
def test_texts_are_read(text: str, objective: Objective) -> None:
    assert Objective.parse(text) == objective


def test_texts_are_written_short() -> None:
    objective = Objective(makespan=1, weighted_tardiness=2, setup_time=0.5)
    assert str(objective) == "makespan + 2*weighted_tardiness + 0.5*setup_time"
    assert str(Objective(flow_time=1, per_job=True)) == "mean(flow_time)"


@given(objectives())
def test_text_and_dictionary_read_back_the_same(objective: Objective) -> None:
    assert Objective.parse(str(objective)) == objective
    assert Objective.from_dict(objective.to_dict()) == objective


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read; write a sum such as"),
        ("makespan +", "cannot be read"),
        ("makespan flow_time", "cannot be read"),
        ("-1*makespan", "cannot be read"),
        ("mean(flow_time) + makespan", "cannot be read"),
        ("makespn", "names the unknown term 'makespn'; use makespan, "),
        ("makespan + makespan", "names makespan twice; add up the two weights"),
        ("0*makespan", "the objective has no term; give a positive weight"),
        ("1e999*makespan", "the weight of makespan is inf; give a finite number"),
    ],
)
def test_a_text_of_another_form_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Objective.parse(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "the objective has no term"),
        ({"makespan": -1.0}, "the weight of makespan is -1.0; give a finite number of at least 0"),
        ({"flow_time": float("nan")}, "the weight of flow_time is nan"),
        ({"flow_time": "1"}, "the weight of flow_time is '1'; give a number"),
        ({"makespan": 1.0, "per_job": 1}, "per_job is 1; give true or false"),
    ],
)
def test_a_wrong_weight_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Objective(**fields)


def test_an_unknown_field_of_a_dictionary_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown field 'makespn'; use makespan, "):
        Objective.from_dict({"makespn": 1.0})
