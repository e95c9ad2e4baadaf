"""``dla serve``: what it answers, what it refuses, and how it ends."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from experiments.collection import server as serving
from experiments.collection.listing import load_document
from experiments.collection.server import ResultServer
from experiments.report.schema import report_json
from experiments.sweep.store import Store
from isa.errors import InputError
from tests.experiments.command_line import dla
from tests.experiments.reporting import grid_file, tiny_run

NAME = "a <b> & 100%.json"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / NAME).write_text(report_json(tiny_run()), encoding="utf-8")
    shutil.copy(grid_file(), folder / "grid.sqlite")
    (tmp_path / "secret.json").write_text(report_json(tiny_run("seed")), encoding="utf-8")
    (folder / "out.json").symlink_to(tmp_path / "secret.json")
    (folder / "notes.txt").write_text("not for others")
    return folder


@contextmanager
def running(folder: Path) -> Iterator[ResultServer]:
    with ResultServer(folder, 0) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(
    server: ResultServer, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.msg, answer.read().decode()
    connection.close()
    return found


def test_the_list_and_its_pages(results: Path) -> None:
    with running(results) as server:
        status, headers, page = ask(server, "/")
        assert status == 200
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert headers["Cache-Control"] == "no-store"
        links = re.findall(r'href="(/report/[^"]*)"', page)
        assert links == ["/report/grid.sqlite", "/report/a%20%3Cb%3E%20%26%20100%25.json"]
        assert "a &lt;b&gt; &amp; 100%.json" in page
        assert "48 of 48" in page
        assert "out.json: a link to a file outside of" in page
        assert "notes.txt" not in page
        for link, name in zip(links, ("grid.sqlite", NAME), strict=True):
            assert ask(server, link)[::2] == (200, load_document(results / name).page())


def test_the_list_is_of_this_moment(results: Path) -> None:
    with running(results) as server, Store(results / "grid.sqlite", create=True) as store:
        store.forget("ok")
        page = ask(server, "/")[2]
        done = sum(store.count_statuses().values())
        assert 0 < done < 48
        assert f"<td>{done} of 48</td><td>running</td>" in page
        (results / NAME).unlink()
        assert ask(server, "/report/a%20%3Cb%3E%20%26%20100%25.json")[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/report/../secret.json",
        "/report/%2e%2e/secret.json",
        "/report/..%2fsecret.json",
        "/report//etc/passwd",
        "/report/out.json",
        "/report/notes.txt",
        "/report/",
        "/report",
        "/grid.sqlite",
        "/runs",
        "/%00",
        "/report/%ff",
        "http://elsewhere/report/x",
    ],
)
def test_nothing_else_is_opened(results: Path, path: str) -> None:
    with running(results) as server:
        status, _, page = ask(server, path)
        assert status == 404
        assert "secret" not in page
        assert "No page" in page


def test_it_only_reads_and_only_for_this_computer(results: Path) -> None:
    before = {path: path.lstat().st_mtime_ns for path in results.iterdir()}
    with running(results) as server:
        assert server.server_address[0] == "127.0.0.1"
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert ask(server, "/", method)[0] == 501
        status, headers, content = ask(server, "/", "HEAD")
        assert (status, content) == (200, "")
        assert int(headers["Content-Length"]) > 1000
        for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1"):
            assert ask(server, "/", host=host)[0] == 403
        assert ask(server, "/", host=f"localhost:{server.server_port}")[0] == 200
    assert {path: path.lstat().st_mtime_ns for path in results.iterdir()} == before


def test_a_damaged_file_and_a_bug_are_answers(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(results) as server:
        (results / "grid.sqlite").write_text("nothing")
        assert ask(server, "/report/grid.sqlite")[0] == 404
        assert "grid.sqlite" in ask(server, "/")[2]

        def fail(file: Path) -> None:
            raise ZeroDivisionError("some mistake")

        monkeypatch.setattr(serving, "load_document", fail)
        status, _, page = ask(server, "/report/a%20%3Cb%3E%20%26%20100%25.json")
        assert status == 500
        assert "ZeroDivisionError: some mistake" in page


def test_a_connection_that_ends_is_no_message(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(results) as server:
        for text in (b"", b"GET / HTTP/1.1\r\n", b"\0\0\0\r\n\r\n", b"GET " + b"a" * 70000):
            with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
                connection.sendall(text)
        assert ask(server, "/")[0] == 200
    assert capsys.readouterr() == ("", "")


def test_a_port_in_use_is_one_line(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(results) as server:
        refused = dla(capsys, "serve", results, "--port", str(server.server_port))
        assert (refused.status, refused.out) == (2, "")
        assert refused.err == (
            f"error: port {server.server_port} of 127.0.0.1 is in use; choose another one with "
            "--port, or any free one with --port 0\n"
        )
    with pytest.raises(InputError, match="no such folder"):
        ResultServer(results / "none", 0)


def test_ctrl_c_ends_it(results: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dla", "serve", str(results), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "experiments")},
    )  # fmt: skip
    assert process.stdout is not None
    found = re.search(r"at http://127\.0\.0\.1:(\d+)/; Ctrl-C ends it", process.stdout.readline())
    assert found is not None
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
    connection.request("GET", "/")
    assert connection.getresponse().status == 200
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (-signal.SIGINT, "", "")
