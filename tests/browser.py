"""The system's Chromium, for tests that look at a page; with ``ATTATTR_NEED_BROWSER`` a missing one is a failure.

Servers are on loopback and know nothing of the user's settings. A page keeps in ``troubles`` what went wrong on it:
scripts that fail, errors on the console, requests for any other host. Nothing here waits for a time, but for a state.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import sync_playwright

from helpers.records import ROOT

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
if not BROWSER and os.environ.get("ATTATTR_NEED_BROWSER"):
    pytest.fail("ATTATTR_NEED_BROWSER is set, and there is no chromium", pytrace=False)
needs_browser = pytest.mark.skipif(not BROWSER, reason="no chromium on this machine (Debian: apt install chromium)")
PATIENCE = 180_000  # milliseconds: on a busy machine a kernel takes its time to import
POLL = 100  # milliseconds between looks: one at every frame leaves the page itself no time where there is little
JUPYTER = ROOT / "helpers" / "pages" / "jupyter"
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--allow-file-access-from-files", "--enable-logging=stderr", "--v=0", "--window-size=1200,900"),
    "--virtual-time-budget=30000",  # timers run at once, and the page is read when none is left
    "--host-resolver-rules=MAP * ~NOTFOUND",
]


def dump(page: Path, profile: Path) -> subprocess.CompletedProcess[str]:
    """Open a page without a network; its document as it ends is in ``stdout``, what the browser said in ``stderr``."""
    command = [BROWSER, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@contextmanager
def server(folder: Path, module: str, *arguments: str):
    """A Jupyter server on loopback; yields its address."""
    own = {f"JUPYTER_{name}_DIR": str(folder / "own" / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"IPYTHONDIR": str(folder / "own" / "ipython"), "JUPYTER_PREFER_ENV_PATH": "1", "PYTHONPATH": str(ROOT)}
    own |= {"JUPYTER_PATH": str(JUPYTER), "JUPYTER_CONFIG_PATH": str(JUPYTER)}
    own |= {f"JUPYTERLAB_{name}_DIR": str(folder / "own" / name.lower()) for name in ("SETTINGS", "WORKSPACES")}
    environment = {name: value for name, value in os.environ.items() if name != "ATTATTR_HEADLESS"} | own
    said = folder / "server.log"
    command = [sys.executable, "-m", module, "--no-browser", *arguments]
    with open(said, "wb") as log:
        running = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield _address(running, said)
    finally:
        running.terminate()
        running.wait(30)


def _address(running: subprocess.Popen, said: Path) -> str:
    for _ in range(PATIENCE // 100):
        found = re.search(r"http://127\.0\.0\.1:\d+/", said.read_text(errors="replace"))
        if found or running.poll() is not None:
            break
        time.sleep(0.1)
    assert found and running.poll() is None, said.read_text(errors="replace")
    return found[0]


def free_port() -> int:
    """A port that nobody listens on; for a server that can't choose one itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def browser_page(**options):
    """A new page of the system's Chromium, with ``troubles``."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"])
        page = browser.new_page(**{"viewport": {"width": 1300, "height": 1000}, **options})
        page.set_default_timeout(PATIENCE)
        page.set_default_navigation_timeout(PATIENCE)
        page.troubles = []
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on("console", lambda line: page.troubles.append(line.text) if line.type == "error" else None)
        page.on("request", lambda asked: _stays(page, asked.url))
        yield page
        browser.close()


def _stays(page, url: str) -> None:
    where = urlsplit(url)
    if where.scheme in ("http", "https", "ws", "wss") and where.hostname != "127.0.0.1":
        page.troubles.append(f"asked {url}")


def titled(page, inside, text: str):
    """Wait until a figure inside has a title with this text, and its data; return the figure."""
    found = """([place, text]) => [...place.querySelectorAll(".js-plotly-plot")].find(
      (f) => f.querySelector(".main-svg") && f.data?.length && f.layout.title.text.includes(text))"""
    handle = page.wait_for_function(found, arg=[inside.first.element_handle(), text], polling=POLL)
    return handle.as_element()


def click_square(page, figure, x: float, y: float) -> None:
    """Click a heat map where its axes say x and y."""
    figure.scroll_into_view_if_needed()
    place = """(f, [x, y]) => {
      const { left, top } = f.getBoundingClientRect(), { xaxis, yaxis } = f._fullLayout;
      return [left + xaxis._offset + xaxis.d2p(x), top + yaxis._offset + yaxis.d2p(y)];
    }"""
    page.mouse.click(*figure.evaluate(place, [x, y]))
