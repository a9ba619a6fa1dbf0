"""Gantt charts: what is drawn where, a picture that is one, and a page that stays by itself."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.envs.gantt import draw_html, draw_png
from hetsched.envs.gantt_layout import GREY, LATE, make_layout
from hetsched.envs.gantt_page import make_page
from hetsched.envs.instance import Instance
from hetsched.envs.schedule import Schedule
from hetsched.tests.envs.instances import random_instance
from hetsched.tests.envs.list_schedule import list_schedule

if TYPE_CHECKING:
    from pathlib import Path

NASTY = "</script><img src=x onerror=alert(1)>\"'&{0} $x^2$"


def example(**others: Any) -> tuple[Schedule, Instance]:
    """Machine 0 occupied until 1, then job 0 [1, 4], set-up, job 1 [6, 8] (late)."""
    setups = np.zeros((3, 2, 2))
    setups[0, 1, 0] = 2
    instance = Instance.from_matrix(
        [[3, 9], [2, 9]],
        setup_times=setups,
        machine_available=[1, 0],
        due_times=[9, 5],
        weights=[1, 7],
        **others,
    )
    schedule = Schedule(
        np.array([0, 2]), np.array([1.0, 6.0]), np.array([4.0, 8.0]), np.array([0.0, 2.0])
    )
    schedule.check(instance)
    return schedule, instance


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def tips(self) -> list[str]:
        return [str(attrs["data-tip"]) for _, attrs in self.tags if "data-tip" in attrs]


def test_every_job_gets_a_bar_on_its_machine() -> None:
    schedule, instance = example()
    layout = make_layout(schedule, instance)
    bars = [(one.job, one.machine, one.start, one.end, one.setup) for one in layout.bars]
    assert bars == [(0, 0, 1.0, 4.0, 0.0), (1, 0, 6.0, 8.0, 2.0)]
    assert layout.tardiness.tolist() == [0.0, 3.0]
    assert (layout.first, layout.last) == (0.0, 8.0)
    assert layout.summary == "2 jobs on 2 machines, makespan 8, 1 late"


@given(st.integers(0, 10_000))
def test_bars_never_lie_on_each_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_instance(rng, shared=True, releases=True)
    schedule = list_schedule(instance, rng)
    layout = make_layout(schedule, instance)
    for one in layout.bars:
        assert layout.tops[one.machine] <= one.low < one.high <= layout.tops[one.machine + 1]
        for two in layout.bars:
            together = one.start < two.end and two.start < one.end
            level = one.low < two.high - 1e-9 and two.low < one.high - 1e-9
            assert one == two or not (together and level)
    units = np.zeros(instance.num_jobs)
    for bar in layout.bars:
        row = layout.tops[bar.machine + 1] - layout.tops[bar.machine]
        units[bar.job] += (bar.high - bar.low) / row * instance.capacity[bar.machine]
    assert np.allclose(units, instance.demand[schedule.modes])


def test_few_families_share_colours_and_many_do_not() -> None:
    names = ["bert-1", "gpt 2", "bert-22", "gpt 3"]
    instance = Instance.from_matrix(np.ones((4, 1)), job_names=names)
    schedule = Schedule(np.arange(4), np.arange(4.0), np.arange(4.0) + 1)
    layout = make_layout(schedule, instance)
    assert [label for label, _ in layout.legend] == ["bert", "gpt"]
    assert layout.colours[0] == layout.colours[2] != layout.colours[1] == layout.colours[3]
    unnamed = make_layout(schedule, Instance.from_matrix(np.ones((4, 1))))
    assert unnamed.legend == ()
    assert len(set(unnamed.colours)) == 4


def test_unscheduled_jobs_are_left_out_and_counted() -> None:
    _, instance = example()
    schedule = Schedule(np.array([0, -1]), np.array([1.0, np.inf]), np.array([4.0, np.inf]))
    layout = make_layout(schedule, instance)
    assert [bar.job for bar in layout.bars] == [0]
    assert layout.summary.endswith("0 late, 1 not scheduled")


def test_the_picture_is_a_png_of_sensible_size(tmp_path: Path) -> None:
    draw_png(*example(machine_names=["a $x", "b$"]), tmp_path / "one.png", title=NASTY)
    content = (tmp_path / "one.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    width, height = struct.unpack(">II", content[16:24])
    assert width == 1800
    assert 250 < height < 800


@pytest.mark.parametrize("draw", [draw_png, draw_html])
def test_schedules_that_break_the_rules_are_drawn_too(tmp_path: Path, draw: Any) -> None:
    instance = Instance.from_matrix(np.ones((3, 1)), capacity=[2], demand=[2, 2, 1])
    draw(Schedule(np.arange(3), np.full(3, -1.0), np.zeros(3)), instance, tmp_path / "one")
    nothing = Schedule(np.full(3, -1), np.zeros(3), np.zeros(3))
    draw(nothing, instance, tmp_path / "two")
    assert (tmp_path / "two").stat().st_size > 0


@pytest.mark.parametrize("draw", [draw_png, draw_html])
def test_a_schedule_of_another_instance_is_refused(tmp_path: Path, draw: Any) -> None:
    schedule = Schedule(np.zeros(1, np.int64), np.zeros(1), np.ones(1))
    with pytest.raises(ValueError, match="the schedule has 1 jobs and the instance 2"):
        draw(schedule, example()[1], tmp_path / "one")


def test_the_page_tells_all_about_a_job(tmp_path: Path) -> None:
    draw_html(*example(job_names=["first", "second"]), tmp_path / "one.html", title="A run")
    page = Page((tmp_path / "one.html").read_text(encoding="utf-8"))
    tips = [re.split(r"\n|  +", one) for one in page.tips()]
    assert ["initial occupation", "machine", "machine 0", "until", "1"] in tips
    second = next(one for one in tips if one[0] == "second")
    assert second[1:] == [
        *("machine", "machine 0", "set-up", "2", "start", "6", "end", "8"),
        *("duration", "2", "weight", "7", "tardiness", "3"),
    ]
    assert {"A run", "set-up", "initial occupation", "late", "machine 1"} <= set(page.words)
    fills = [attrs.get("fill") for tag, attrs in page.tags if tag == "rect"]
    assert {"url(#hatch)", GREY, LATE} <= set(fills)


def test_the_page_asks_nothing_of_the_network() -> None:
    schedule, instance = example()
    text = make_page(make_layout(schedule, instance), instance, "A run")
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|//[a-z]|@import|\bsrc=|href|fetch\(|XMLHttp", text)
    assert {"link", "img", "iframe"}.isdisjoint(tag for tag, _ in Page(text).tags)


def test_names_are_text_and_never_markup(tmp_path: Path) -> None:
    schedule, instance = example(job_names=[NASTY, "\ud800"], machine_names=[NASTY, "ünï"])
    draw_html(schedule, instance, tmp_path / "one.html", title=NASTY)
    text = (tmp_path / "one.html").read_text(encoding="utf-8")
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not any(tag == "img" for tag, _ in page.tags)
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert any(one.startswith(NASTY) for one in page.tips())
    plain_schedule, plain = example(job_names=["one", "two"])
    plain_page = Page(make_page(make_layout(plain_schedule, plain), plain, "title"))
    shape = [(tag, sorted(attrs)) for tag, attrs in page.tags if tag != "text"]
    assert shape == [(tag, sorted(attrs)) for tag, attrs in plain_page.tags if tag != "text"]


def test_the_drawing_is_well_formed_svg() -> None:
    schedule, instance = example(job_names=["a<b&c", 'd"e'])
    text = make_page(make_layout(schedule, instance), instance, "A run")
    found = re.search(r"<svg.*</svg>", text, re.DOTALL)
    assert found is not None
    assert ET.fromstring(found.group()).tag == "svg"


def test_the_axis_reaches_to_the_last_end_that_was_planned() -> None:
    instance = Instance.from_matrix(np.array([[3.0], [4.0]]))
    schedule = Schedule(
        modes=np.array([0, 1]), starts=np.array([0.0, 3.0]), ends=np.array([3, 7.0])
    )
    assert make_layout(schedule, instance).last == 7.0
    assert make_layout(schedule, instance, np.array([12.0, np.nan])).last == 12.0
    with pytest.raises(
        ValueError, match=r"planned has shape \(1,\); give a time for each of 2 jobs"
    ):
        make_layout(schedule, instance, np.array([1.0]))
