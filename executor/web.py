"""A small page that shows a queue in a browser, and the same as JSON and for Prometheus.

    /                          the page (`web_page.html`, one file, no network)
    /api/queue                 everything, as JSON
    /api/log?job=NAME          the end of what a job wrote, as text; &attempt=N, &bytes=N
    /metrics                   for Prometheus

It only reads: there is no address that changes anything. It reads the state and not the scheduler,
in threads of its own, so that no client, however slow or many, holds up a decision.

What a browser could be made to do with it: pages of other sites cannot read it (no CORS header, and
names that point here from outside are refused by their Host header); names of jobs cannot become
part of the page (the script writes text, and the policy in the head allows that one script only).
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from hetsched.executor import metrics
from hetsched.executor.queue import QueueError
from hetsched.executor.snapshot import Reader, Snapshot, Watch
from hetsched.executor.store import StoreError
from hetsched.executor.web_data import queue_data

DEFAULT_HOST = "127.0.0.1"
CLIENTS = 32  # served at once; others are turned away
CLIENT_SECONDS = 10.0  # for which one may keep us waiting
LOG_BYTES, MOST_LOG_BYTES = 1 << 16, 1 << 20


class WebError(ValueError):
    """The page cannot be served, in one sentence that names the address and the mend."""


class WebServer:
    """Serves the page of a state from its opening to `close`, in threads that die with the process.

    Args:
        folder: of the state.
        port: 0: any that is free.
        host: name or address to listen at.

    Raises:
        WebError: the port cannot be had.
    """

    def __init__(self, folder: str | Path, port: int, host: str = DEFAULT_HOST) -> None:
        if not 0 <= port <= 65535:
            raise WebError(f"port is {port}; give a number from 0 (any that is free) to 65535.")
        try:
            self._server = _Server(Path(folder), host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise WebError(
                f"cannot listen at {host}, port {port} ({reason}); choose another."
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="hetsched-web", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/"

    def join(self) -> None:
        """Wait until somebody closes it."""
        self._thread.join()

    def close(self) -> None:
        """Take no more clients; those that are being served are left to their threads."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True  # else the port is taken for a minute after a restart

    def __init__(self, folder: Path, host: str, port: int) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self.watch = Watch(folder)
        self.names = {"localhost", host.lower(), socket.gethostname().lower()} - {""}
        self.page, self.policy = _page()
        self._room = threading.BoundedSemaphore(CLIENTS)
        self._written: tuple[Snapshot | None, bytes] = (None, b"")
        super().__init__((host, port), _Handler)

    def queue_json(self) -> bytes:
        """The latest snapshot, put into words once for all who ask."""
        latest = self.watch.latest()
        known, text = self._written
        if latest is not known:
            text = json.dumps(queue_data(latest), allow_nan=False).encode()
            self._written = latest, text
        return text

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's asks a name server, for nothing

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; the terminal belongs to the queue."""

    def is_own_name(self, host: str) -> bool:
        """Whether a Host header can be meant for us.

        A page of another site can reach us only under a name that its owner controls, so
        addresses are let through and names must be ours.
        """
        name = re.sub(r":\d*$", "", host.strip().lower())
        if name.rstrip(".") in self.names:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


class _Refused(Exception):
    """An answer other than 200, with one sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENT_SECONDS
    server_version, sys_version = "hetsched", ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _refuse_method(self) -> None:
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"this page only shows\n", True)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse_method

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the terminal belongs to the queue."""

    def _answer(self, with_body: bool) -> None:
        try:
            if not self.server.is_own_name(self.headers.get("Host", "")):
                raise _Refused(
                    HTTPStatus.MISDIRECTED_REQUEST,
                    "this name is not ours; use localhost, the address, or --web-host NAME",
                )
            url = urlsplit(self.path)
            answer = self._PATHS.get(url.path)
            if answer is None:
                raise _Refused(HTTPStatus.NOT_FOUND, "there is nothing here; see /")
            kind, body = answer(self, parse_qs(url.query))
            status = HTTPStatus.OK
        except _Refused as error:
            status, kind, body = error.status, "text/plain; charset=utf-8", f"{error}\n".encode()
        except StoreError as error:
            status, kind = HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8"
            body = f"{error}\n".encode()
        except Exception as error:  # a bug; the queue goes on, and the person who asked is told
            status, kind = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8"
            body = f"{type(error).__name__}: {error}\n".encode(errors="replace")
        self._send(status, kind, body, with_body)

    def _send(self, status: HTTPStatus, kind: str, body: bytes, with_body: bool) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", self.server.policy),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    # ---- what there is -------------------------------------------------------------------------

    def _page(self, query: dict[str, list[str]]) -> tuple[str, bytes]:
        return "text/html; charset=utf-8", self.server.page

    def _queue(self, query: dict[str, list[str]]) -> tuple[str, bytes]:
        return "application/json", self.server.queue_json()

    def _metrics(self, query: dict[str, list[str]]) -> tuple[str, bytes]:
        try:
            return metrics.CONTENT_TYPE, metrics.as_text(self.server.watch.latest())
        except metrics.MetricsMissing as error:
            raise _Refused(HTTPStatus.NOT_IMPLEMENTED, str(error)) from None

    def _log(self, query: dict[str, list[str]]) -> tuple[str, bytes]:
        job = query.get("job", [""])[0]
        attempt = _whole(query, "attempt", None)
        size = _whole(query, "bytes", LOG_BYTES)
        with closing(Reader(self.server.watch.folder)) as reader:
            try:
                path = reader.log_file(job, attempt)
            except QueueError as error:
                raise _Refused(HTTPStatus.NOT_FOUND, str(error)) from None
        if path is None:
            raise _Refused(HTTPStatus.NOT_FOUND, f"job {job!r} has written nothing yet")
        with path.open("rb") as log:
            end = log.seek(0, 2)
            log.seek(max(0, end - min(size or LOG_BYTES, MOST_LOG_BYTES)))
            return "text/plain; charset=utf-8", log.read(MOST_LOG_BYTES)

    _PATHS: ClassVar[dict[str, Callable[..., tuple[str, bytes]]]] = {
        "/": _page,
        "/api/queue": _queue,
        "/api/log": _log,
        "/metrics": _metrics,
    }


def _whole(query: dict[str, list[str]], name: str, default: int | None) -> int | None:
    text = query.get(name, [""])[0]
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise _Refused(HTTPStatus.BAD_REQUEST, f"{name} is {text!r}; give a whole number")
    return int(text)


def _page() -> tuple[bytes, str]:
    """The page, and the policy that allows its own style and script and nothing else."""
    page = resources.files("hetsched.executor").joinpath("web_page.html").read_bytes()

    def digest(tag: bytes) -> str:
        found = re.search(rb"<%s>(.*?)</%s>" % (tag, tag), page, re.DOTALL)
        assert found is not None
        return base64.b64encode(hashlib.sha256(found[1]).digest()).decode()

    policy = (
        f"default-src 'none'; script-src 'sha256-{digest(b'script')}'; "
        f"style-src 'sha256-{digest(b'style')}'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy
