"""The web page in a real browser: playwright (`pip install -e '.[browser]'`) and a Chromium.

CONTRIBUTING.md says how to run it; where either is missing it is skipped.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hetsched.executor import store
from hetsched.executor.store_ledger import StoreLedger
from hetsched.executor.web import WebServer
from hetsched.tests.executor.made_states import EVIL, make_state

playwright = pytest.importorskip(
    "playwright.sync_api",
    reason="playwright is not installed: pip install -e '.[browser]', and have a Chromium",
)
CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip(
        "no Chromium is installed: apt-get install chromium, or CHROMIUM=/path/to/it",
        allow_module_level=True,
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        one = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield one
        one.close()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return make_state(tmp_path / "state")


@pytest.fixture
def page(browser: Any, state: Path) -> Iterator[Any]:
    """The page, of which nothing may be refused by its policy, nor asked of anybody else."""
    with contextlib.closing(WebServer(state, 0)) as server:
        one = browser.new_page()
        wrong: list[str] = []
        one.on("pageerror", lambda error: wrong.append(str(error)))
        one.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        one.on(
            "request",
            lambda sent: (
                None if sent.url.startswith((server.url, "data:")) else wrong.append(sent.url)
            ),
        )
        one.goto(server.url)
        one.wait_for_selector("#jobs tr")
        yield one
        one.close()
    assert wrong == []


def texts(page: Any, selector: str) -> list[str]:
    """The text of rows of a table, their cells apart."""
    cells = "rows => rows.map(row => [...row.cells].map(cell => cell.innerText).join(' '))"
    return [" ".join(one.split()) for one in page.locator(selector).evaluate_all(cells)]


def test_it_shows_the_queue_and_why_jobs_wait(page: Any) -> None:
    rows = texts(page, "#jobs tr")
    assert [row.split()[0] for row in rows] == ["half", "runs", "gang", EVIL.split()[0], "b"]
    assert "waiting" in rows[2]
    assert "needs 4 of 'four' together; 2 free; next at about" in rows[2]
    assert texts(page, "#machines tr")[1].startswith("four k80 2 of 4")
    assert "exit status 3" in texts(page, "#failures tr")[0]
    assert "no scheduler runs" in page.inner_text("#summary")


def test_a_job_named_like_a_script_is_a_name_and_does_not_run(page: Any) -> None:
    assert page.title() == "state: 1 done, 1 failed, 2 running, 1 waiting"
    assert EVIL in page.inner_text("#jobs")
    assert page.locator("script").count() == 1
    assert page.locator("#notes i").count() == 0
    assert "machine 'one' is <i>hot</i>" in page.inner_text("#notes")


def test_the_chart_has_a_bar_per_attempt_and_the_plan_of_it(page: Any) -> None:
    assert page.locator("rect.attempt").count() == 4
    assert page.locator("rect.plan").count() == 3  # not of the one that failed
    attempt, plan = page.locator("rect.attempt.done"), page.locator("rect.plan").first
    took, expected = (float(one.get_attribute("width")) for one in (attempt, plan))
    assert expected / took == pytest.approx(4.0 / 5.0)
    attempt.hover()
    tip = page.inner_text("#tip").splitlines()
    assert tip[0] == f"{EVIL}  (attempt 1)"
    assert tip[3:] == ["took      5.0 s", "expected  4.0 s"]


def test_a_log_opens_is_text_and_grows(page: Any, state: Path) -> None:
    page.get_by_role("button", name=EVIL, exact=True).click()
    page.locator("#output", has_text="this is").wait_for()
    assert page.inner_text("#output").strip() == f"this is <b>{EVIL}</b>"
    with next((state / store.LOGS).glob("half*")).open("a") as log:
        log.write("10 %\r50 %\r100 %\n\x1b[31mred\x1b[0m\n")
    page.get_by_role("button", name="half", exact=True).click()
    page.locator("#output", has_text="red").wait_for()
    assert page.inner_text("#output").split("\n")[1:3] == ["100 %", "red"]
    page.keyboard.press("Escape")
    assert not page.is_visible("#log")


def test_it_follows_what_happens_and_says_when_it_cannot(page: Any, state: Path) -> None:
    with contextlib.closing(StoreLedger(state)) as ledger:
        ledger.load()
        ledger.fate("gang", "cancelled", "")
        ledger.commit()
    page.locator("#summary", has_text="1 cancelled").wait_for()
    page.fill("#filter", "GANG")
    assert len(texts(page, "#jobs tr")) == 1
    page.evaluate("() => { window.fetch = () => Promise.reject(new Error('gone')); }")
    page.wait_for_selector("#alarm", state="visible")
    assert "gone" in page.inner_text("#alarm")
