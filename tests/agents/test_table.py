"""The table: ratios, errors and wins by hand, and what it refuses or notes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.agents.evaluation import Measurement
from hetsched.agents.table import (
    COLUMNS,
    build_table,
    check_reference,
    count_wins,
    mean_ratio,
    ratio_of_means,
)


def measured(
    name: str, costs: list[float], kind: str = "rule", hindsight: bool = False, seconds: float = 1.0
) -> Measurement:
    count = len(costs)
    return Measurement(
        name=name,
        kind=kind,
        costs=np.array(costs, float),
        seconds=np.full(count, seconds),
        decisions=np.full(count, 10),
        hindsight=hindsight,
        schedules=(None,) * count,
    )


def test_mean_of_ratios_and_ratio_of_means_differ_as_they_should() -> None:
    costs, base = np.array([2.0, 10.0]), np.array([1.0, 10.0])
    ratio, error = mean_ratio(costs, base)
    assert ratio == 1.5  # (2 + 1) / 2
    assert error == pytest.approx(0.5)  # deviations of 0.5, over the root of n - 1 and of n
    ratio, error = ratio_of_means(costs, base)
    assert ratio == pytest.approx(12 / 11)
    # residuals 2 - 12/11 and 10 - 120/11: plus and minus 10/11; standard error 10/11, over 5.5
    assert error == pytest.approx(10 / 11 / 5.5)


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)), min_size=2, max_size=20),
    st.floats(0.01, 1000),
)
def test_a_unit_of_cost_changes_no_ratio(pairs: list[tuple[float, float]], unit: float) -> None:
    costs, base = np.array(pairs).T
    for function in (mean_ratio, ratio_of_means):
        assert function(costs * unit, base * unit) == pytest.approx(function(costs, base), abs=1e-9)


def test_a_contender_has_ratio_one_without_error_to_itself() -> None:
    table = build_table([measured("atc", [3, 5, 9])])
    (row,) = table.rows
    assert (row.ratio, row.ratio_error, row.ratio_of_means, row.ratio_of_means_error) == (
        1.0,
        0.0,
        1.0,
        0.0,
    )


def test_the_reference_is_the_rule_of_least_mean_cost() -> None:
    table = build_table(
        [
            measured("learned", [1, 1], kind="policy"),
            measured("atc-grid", [1, 1.5], kind="portfolio"),
            measured("atc", [2, 3]),
            measured("ect", [1, 5]),
        ]
    )
    assert table.reference == "atc"
    assert [row.policy for row in table.rows] == ["learned", "atc-grid", "atc", "ect"]
    assert table.rows[0].ratio == pytest.approx((1 / 2 + 1 / 3) / 2)


def test_the_proven_reference_of_a_set_goes_before_a_long_search() -> None:
    references = {"annealing": np.array([2.0, 2.0]), "optimum": np.array([1.0, 2.0])}
    table = build_table([measured("atc", [2, 2])], references)
    assert table.reference == "optimum"
    assert build_table([measured("atc", [2, 2])], references, "annealing").reference == "annealing"
    assert {row.policy for row in table.rows if row.from_file} == {"annealing", "optimum"}


def test_best_of_rules_is_the_least_on_each_instance() -> None:
    table = build_table([measured("atc", [2, 3]), measured("ect", [1, 5])], None, "best-of-rules")
    assert table.base.tolist() == [1, 3]


def test_without_rules_the_first_contender_is_the_reference() -> None:
    table = build_table([measured("b", [2], "policy"), measured("a", [1], "policy")])
    assert table.reference == "b"


def test_equals_all_win_and_hindsight_does_not_compete() -> None:
    wins = count_wins(
        [
            measured("a", [1, 2, 3]),
            measured("b", [1, 3, 3 + 1e-12]),
            measured("c", [9, 9, math.inf]),
            measured("oracle", [0, 0, 0], hindsight=True),
        ]
    )
    assert wins == {"a": 3, "b": 2, "c": 0}


def test_hindsight_is_marked_and_explained() -> None:
    text = build_table(
        [measured("atc", [2, 2]), measured("cp-sat@1", [1, 1], "solver", hindsight=True)]
    ).text()
    assert "cp-sat@1*" in text
    assert "* decided in hindsight" in text


def test_a_missing_schedule_is_a_dash_and_a_note() -> None:
    table = build_table([measured("atc", [2, 2]), measured("cp-sat@1", [1, math.inf], "solver")])
    row = next(row for row in table.rows if row.policy == "cp-sat@1")
    assert math.isnan(row.ratio)
    assert row.cells()[:4] == ("cp-sat@1", None, None, None)
    assert "cp-sat@1 found no schedule in time on 1 instances." in table.notes


def test_a_zero_reference_is_left_out_of_the_mean_ratio_with_a_note() -> None:
    table = build_table([measured("atc", [4, 1])], {"optimum": np.array([2.0, 0.0])})
    assert next(row.ratio for row in table.rows if row.policy == "atc") == 2.0
    assert any("zero or missing on 1 instances" in note for note in table.notes)


def test_costs_below_a_proven_optimum_are_suspicious() -> None:
    references = {"optimum": np.array([2.0, 2.0]), "proven": np.array([True, False])}
    table = build_table([measured("atc", [1, 1])], references)
    assert any("below the optimum on 1 instances" in note for note in table.notes)
    assert "proven" not in {row.policy for row in table.rows}


def test_milliseconds_are_seconds_over_decisions() -> None:
    (row,) = build_table([measured("atc", [1, 1], seconds=0.02)]).rows
    assert row.milliseconds == pytest.approx(2.0)


def test_cells_have_the_order_of_the_columns() -> None:
    table = build_table([measured("atc", [1, 3])])
    assert dict(zip(COLUMNS, table.rows[0].cells(), strict=True)) == {
        "policy": "atc",
        "mean cost": 2.0,
        "ratio": 1.0,
        "ratio error": 0.0,
        "ratio of means": 1.0,
        "ratio of means error": 0.0,
        "wins": 2,
        "ms per decision": 100.0,
    }


def test_a_reference_that_is_missing_somewhere_stands_last() -> None:
    rows = [measured("a", [5.0, 5.0]), measured("b", [1.0, 1.0])]
    table = build_table(rows, {"x": np.array([2.0, np.nan])})
    assert [row.policy for row in table.rows] == ["b", "a", "x"]


def test_columns_are_aligned() -> None:
    text = build_table([measured("a", [1, 1]), measured("much-longer", [1234567, 1])]).text()
    lines = text.split("\n\n")[0].splitlines()
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "nothing to compare"),
        (([measured("a", [1]), measured("b", [1, 2])],), "b has 2 costs, want 1"),
        (([measured("a", [1])], {"optimum": np.ones(3)}), "optimum has 3 costs"),
        (([measured("a", [1])], None, "optimal"), "known: a, best-of-rules"),
        (([measured("a", [1], "policy")], None, "best-of-rules"), "no reference is called"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_table(*arguments)


def test_a_reference_can_be_checked_before_anything_is_measured() -> None:
    check_reference([measured("a", [1])], {}, None)
    check_reference([measured("a", [1])], {"optimum": np.ones(1)}, "optimum")
    with pytest.raises(ValueError, match="no reference is called 'proven'"):
        check_reference([measured("a", [1])], {"proven": np.ones(1, bool)}, "proven")
