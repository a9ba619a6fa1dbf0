"""The web page's server: what it answers, and what it refuses."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

from hetsched import dispatch
from hetsched.cli import UserError
from hetsched.executor import web
from hetsched.executor.web import WebError, WebServer
from hetsched.tests.executor.made_states import EVIL, make_state


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_state(tmp_path_factory.mktemp("web") / "state")


@pytest.fixture(scope="module")
def server(state: Path) -> Iterator[WebServer]:
    with contextlib.closing(WebServer(state, 0)) as one:
        yield one


Answer = tuple[int, dict[str, str], str]


def ask(server: WebServer, path: str, method: str = "GET", **headers: str) -> Answer:
    port = int(server.url.rstrip("/").rpartition(":")[2])
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
        client.request(method, path, headers=headers)
        answer = client.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


def test_it_listens_at_this_computer_only(server: WebServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")


def test_the_queue_is_there_as_json(server: WebServer) -> None:
    status, headers, body = ask(server, "/api/queue")
    said = json.loads(body)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert (said["name"], said["scheduler"]) == ("state", False)
    assert said["counts"] == {"done": 1, "failed": 1, "running": 2, "waiting": 1}
    assert [one["job"] for one in said["jobs"]] == ["half", "runs", "gang", EVIL, "b"]
    assert said["jobs"][2]["reason"].startswith("needs 4 of 'four' together; 2 free; next")
    first = said["bars"][0]
    assert (first["job"], first["ended"], first["expected"], first["unit"]) == (EVIL, 5.0, 4.0, 0)
    assert [one["reason"] for one in said["failures"]] == ["exit status 3"]
    assert said["notes"] == [{"at": 3.0, "text": "machine 'one' is <i>hot</i>"}]
    used = {one["machine"]: (one["used"], one["capacity"]) for one in said["machines"]}
    assert used == {"one": (1, 1), "four": (2, 4)}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_needs_no_network_and_the_browser_is_told_so(server: WebServer) -> None:
    status, headers, page = ask(server, "/")
    tags = Tags()
    tags.feed(page)
    assert status == 200
    assert {tag for tag, _ in tags.found} >= {"svg", "table", "script", "style"}
    addresses = [
        value for _, said in tags.found for name, value in said.items() if name in ("src", "href")
    ]
    assert addresses == ["data:,"]  # the icon
    assert not any(name.startswith("on") for _, said in tags.found for name in said)
    assert not any("style" in said for _, said in tags.found)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers


def test_the_script_writes_text_and_never_markup(server: WebServer) -> None:
    page = ask(server, "/")[2]
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in page


def test_the_end_of_a_log_is_plain_text(server: WebServer) -> None:
    status, headers, body = ask(server, f"/api/log?job={quote(EVIL)}")
    assert (status, body) == (200, f"this is <b>{EVIL}</b>\n")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert ask(server, "/api/log?job=half&attempt=1&bytes=5")[2] == "</b>\n"


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/api/log?job=..%2Fstate.sqlite", 404, "there is no job"),
        ("/api/log?job=gang", 404, "has not run yet"),
        ("/api/log?job=b&attempt=2", 404, "no attempt 2"),
        ("/api/log?job=b&attempt=x", 400, "attempt is 'x'; give a whole number"),
        ("/api/log", 404, "there is no job"),
        ("/../state.sqlite", 404, "nothing here"),
        ("/api/cancel?job=b", 404, "nothing here"),
    ],
)
def test_a_wrong_address_is_one_sentence(
    server: WebServer, path: str, status: int, sentence: str
) -> None:
    answer = ask(server, path)
    assert answer[0] == status
    assert sentence in answer[2]
    assert answer[1]["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(server: WebServer, method: str) -> None:
    status, headers, _ = ask(server, "/api/queue", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_head_answers_without_a_body(server: WebServer) -> None:
    status, headers, body = ask(server, "/", "HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1234", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("192.0.2.7:8765", 200),
        ("evil.example", 421),
        ("localhost.evil.example:8765", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_a_name_that_somebody_else_controls_is_refused(
    server: WebServer, host: str, status: int
) -> None:
    assert ask(server, "/api/queue", Host=host)[0] == status


def test_the_name_it_was_told_to_listen_at_is_its_own(state: Path) -> None:
    with contextlib.closing(WebServer(state, 0, "localhost")) as one:
        assert ask(one, "/api/queue", Host="LOCALHOST:80")[0] == 200


def test_prometheus_can_read_it(server: WebServer) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    status, headers, body = ask(server, "/metrics")
    assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    families = list(parser.text_string_to_metric_families(body))
    values = {
        (one.name, *sorted(one.labels.values())): one.value
        for family in families
        for one in family.samples
    }
    assert values["hetsched_scheduler_up",] == 0.0
    assert values["hetsched_jobs", "waiting"] == 1.0
    assert values["hetsched_attempts_total", "failed"] == 1.0
    assert values["hetsched_attempts_total", "lost"] == 0.0
    assert values["hetsched_machine_units_used", "four"] == 2.0
    assert values["hetsched_machine_busy_unit_seconds_total", "four"] > 1.0
    assert values["hetsched_decision_seconds_count",] == 0.0


def test_without_the_library_metrics_say_what_to_install(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    status, _, body = ask(server, "/metrics")
    assert status == 501
    assert "pip install 'hetsched[web]'" in body


def test_clients_that_keep_it_waiting_do_not_keep_others_out(server: WebServer) -> None:
    port = int(server.url.rstrip("/").rpartition(":")[2])
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(web.CLIENTS - 2)]
    try:
        for one in slow:
            one.sendall(b"GET /api/queue HTTP/1.1\r\n")  # and no more
        assert ask(server, "/api/queue")[0] == 200
    finally:
        for one in slow:
            one.close()


def test_clients_beyond_all_measure_are_turned_away_and_leave_no_threads(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "CLIENTS", 2)
    with contextlib.closing(WebServer(state, 0)) as server:
        port = int(server.url.rstrip("/").rpartition(":")[2])
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        try:
            with pytest.raises((http.client.HTTPException, ConnectionError)):
                ask(server, "/api/queue")
        finally:
            for one in slow:
                one.close()
        for _ in range(100):  # their threads notice in a moment
            with contextlib.suppress(http.client.HTTPException, ConnectionError):
                assert ask(server, "/api/queue")[0] == 200
                break
            time.sleep(0.05)
        else:
            pytest.fail("still turned away")


def test_a_state_that_is_not_there_any_more_is_one_sentence(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    with contextlib.closing(WebServer(state, 0)) as server:
        state.rename(tmp_path / "elsewhere")
        status, _, body = ask(server, "/api/queue")
    assert status == 503
    assert "holds no queue" in body


def test_the_command_says_where_the_page_is_and_shows_it_until_it_is_ended(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def look(server: WebServer) -> None:
        assert ask(server, "/api/queue")[0] == 200
        looked.append(server.url)

    looked: list[str] = []
    monkeypatch.setattr(WebServer, "join", look)
    assert dispatch.dispatch(["serve", str(state), "--port", "0"]) == 0
    assert f"is shown at {looked[0]} " in capsys.readouterr().out
    with pytest.raises(OSError, match="refused"):  # it is closed
        urllib.request.urlopen(looked[0], timeout=20)


def test_a_port_that_is_taken_is_one_sentence(server: WebServer, state: Path) -> None:
    port = server.url.rstrip("/").rpartition(":")[2]
    with pytest.raises(WebError, match=rf"port {port} \(.*in use\); choose another"):
        WebServer(state, int(port))
    with pytest.raises(UserError, match=f"port {port} "):
        dispatch.dispatch(["serve", str(state), "--port", port])
    with pytest.raises(UserError, match="port is 70000"):
        dispatch.dispatch(["serve", str(state), "--port", "70000"])
    with pytest.raises(UserError, match="nothing holds no queue"):
        dispatch.dispatch(["serve", str(state / "nothing")])
