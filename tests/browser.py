"""The system's Chromium, for tests that look at a page; with ``ATTATTR_NEED_BROWSER`` a missing one is a failure."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
if not BROWSER and os.environ.get("ATTATTR_NEED_BROWSER"):
    pytest.fail("ATTATTR_NEED_BROWSER is set, and there is no chromium", pytrace=False)
needs_browser = pytest.mark.skipif(not BROWSER, reason="no chromium on this machine (Debian: apt install chromium)")
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
