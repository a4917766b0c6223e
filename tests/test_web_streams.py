"""Pages whose stream is silent, refused or another log-in's: behind a proxy that hands on, holds back and refuses."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest
from browser import Page
from lab import Lab
from ports import free_port

REFUSED = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy(socketserver.ThreadingTCPServer):
    """Hands connections on to a port of this machine."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.to = port
        self.holds = False
        """What the server says goes no further."""
        self.refuses = False
        """New connections are answered with an error, old ones have ended."""


class Connection(socketserver.BaseRequestHandler):
    server: Proxy

    def handle(self) -> None:
        if self.server.refuses:
            self.request.recv(65536)
            self.request.sendall(REFUSED)
            return
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.server.to)) as there:
            back = threading.Thread(target=self.back, args=(there,), daemon=True)
            back.start()
            while data := self.request.recv(65536):
                there.sendall(data)
            there.shutdown(socket.SHUT_RDWR)
            back.join(10)

    def back(self, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            there.settimeout(0.2)
            while not self.server.refuses:
                with contextlib.suppress(TimeoutError):
                    data = there.recv(65536)
                    if not data:
                        break
                    if not self.server.holds:
                        self.request.sendall(data)
            self.request.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(free_port()) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield one
        one.refuses = True
        one.shutdown()


def doors(lab: Lab, proxy: Proxy) -> tuple[str, str]:
    """A dashboard behind a proxy: the addresses of an operator and of a viewer there."""
    name = f"127.0.0.1:{proxy.server_address[1]}"
    child = lab.start("web", "--listen", f"127.0.0.1:{proxy.to}", "--name", name)
    assert child.stdout is not None
    operator, viewer = (child.stdout.readline().split()[1] for _ in range(2))
    assert operator.startswith(f"http://{name}/#token=")
    return operator, viewer


@pytest.mark.browser
@pytest.mark.limit(300)
def test_a_stream_that_is_silent_or_refused_is_told_and_opened_again(
    lab: Lab, page: Page, proxy: Proxy
) -> None:
    operator, _ = doors(lab, proxy)
    child = lab.start("run", "ping://127.0.0.1", "--rate", "5", "--duration", "280s", "--quiet")
    folder = lab.sampled()
    page.driver.get(operator)
    page.wait("!!document.querySelector('.run .of')")
    page.js(f"void (location.hash = '#/run/{folder.name}')")
    page.wait("document.querySelector('.state')?.innerText === 'running'", "the run is not shown")
    elapsed = (
        "[...document.querySelectorAll('.line span')].find((one) => one.innerText.includes(' / ')).innerText"
    )
    lost = "(document.querySelector('.failure')?.innerText ?? '').includes('Trying again')"
    for fault in ("holds", "refuses"):
        setattr(proxy, fault, True)
        page.wait(lost, f"the page shows old figures as if they were new: {fault}")
        before = page.js(elapsed)
        setattr(proxy, fault, False)
        page.wait(f"!{lost} && {elapsed} !== {before!r}", f"the stream is not opened again: {fault}")
    child.terminate()
    lab.wait(child)


@pytest.mark.browser
@pytest.mark.limit(240)
def test_two_pages_of_one_browser_have_one_log_in(lab: Lab, page: Page, proxy: Proxy) -> None:
    operator, viewer = doors(lab, proxy)
    page.driver.get(operator)
    new = "!!document.querySelector('a[href=\"#/new\"]')"
    page.wait(new)
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.driver.get(viewer)
    page.wait("!!document.querySelector('nav button')")
    page.driver.switch_to.window(first)
    page.wait(
        f"!({new}) && !!document.querySelector('nav button')", "what a viewer may not do is still there"
    )
