"""Server of the results below a folder, for a browser on the same computer.

It answers GET and HEAD. It shows a list of runs and sweeps, which the page keeps up to date, and
the page of each. It opens only files of the list, so that no request names a file elsewhere.
"""

import errno
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import quote, unquote, urlsplit

from experiments.collection.listing import (
    RUN_HEADINGS,
    SWEEP_HEADINGS,
    Collector,
    ResultList,
    SavedFile,
    load_document,
)
from experiments.report.html import Html, Section, asset, paragraph, plain_page, table
from isa.errors import InputError

ADDRESS = "127.0.0.1"
"""The only address of the server: other computers cannot reach it."""
_REPORTS = "/report/"
_SECONDS = 30.0
"""Longest wait for a part of a request."""


class ResultServer(ThreadingHTTPServer):
    """Server of the results below ``folder``; raise InputError if it cannot use ``port``.

    Port 0 is any free port. Requests are answered until :meth:`serve_forever` is interrupted.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        self._collector = Collector(folder)
        self._lock = Lock()
        try:
            super().__init__((ADDRESS, port), _RequestHandler)
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"is not free ({error})"
            raise InputError(
                f"port {port} of {ADDRESS} {why}; choose another one with --port, or any free one "
                "with --port 0"
            ) from error

    @property
    def address(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/"

    def collect(self) -> ResultList:
        """Return the present results; one thread reads at a time."""
        with self._lock:
            return self._collector.collect()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the end of a connection, such as a tab that is closed while its page loads."""


class _RequestHandler(BaseHTTPRequestHandler):
    """Answers to the requests of one connection."""

    server: ResultServer
    server_version = "dla"
    sys_version = ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        status, text = self._find_answer()
        content = text.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *values: object) -> None:
        """Print nothing about requests."""

    def _find_answer(self) -> tuple[HTTPStatus, str]:
        """Return the status and the page of the request."""
        port = self.server.server_port
        # another name is a page elsewhere that has its own name lead to this server
        if self.headers.get("Host") not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
            return HTTPStatus.FORBIDDEN, _message(f"open {self.server.address}")
        path = urlsplit(self.path).path
        try:
            found = self.server.collect()
            if path == "/":
                return HTTPStatus.OK, list_page(found)
            name = unquote(path.removeprefix(_REPORTS))
            if path.startswith(_REPORTS) and name in {
                entry.file for entry in (*found.runs, *found.sweeps)
            }:
                return HTTPStatus.OK, load_document(found.folder / name).page()
        except InputError as error:
            return HTTPStatus.NOT_FOUND, _message(str(error))
        except Exception as error:
            text = f"this is a bug of dla itself ({type(error).__name__}: {error})"
            return HTTPStatus.INTERNAL_SERVER_ERROR, _message(text)
        return HTTPStatus.NOT_FOUND, _message("there is no such run or sweep in the list")


def _message(text: str) -> str:
    return plain_page("dla", [Section("message", "No page", paragraph(text))])


def list_page(found: ResultList) -> str:
    """Return the page of all runs and sweeps, which fetches itself again."""
    now = time.time()
    folder = found.folder
    sections = []
    if found.sweeps:
        rows = [one.cells(folder, now) for one in found.sweeps]
        body = table(SWEEP_HEADINGS, rows, range(3, 6), _addresses(found.sweeps))
        sections.append(Section("sweeps", "Sweeps", body))
    body = table(
        RUN_HEADINGS, [one.cells(folder) for one in found.runs], [2], _addresses(found.runs)
    )
    empty = paragraph(f"no runs below {folder}; 'dla run MODEL' writes a report to runs")
    sections.append(Section("runs", "Runs", body if found.runs else empty))
    if found.faults:
        faults = table(("file and reason",), [(one.fault,) for one in found.faults])
        sections.append(Section("faults", "Not listed", faults))
    state = Html('<p class="note" id="state" role="status"></p>')
    return plain_page(f"Results below {folder}", sections, asset("runs.js"), state)


def _addresses(entries: Sequence[SavedFile]) -> list[str]:
    return [f"{_REPORTS}{quote(entry.file)}" for entry in entries]
