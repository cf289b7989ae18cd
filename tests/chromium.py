"""Open a report in Chromium, evaluate JavaScript in it and read the console."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # the page must not need a network
    "--allow-file-access-from-files", "--virtual-time-budget=3000", "--enable-logging=stderr", "--v=0",
]  # fmt: skip
DARK = "--blink-settings=preferredColorScheme=0"
FRAME = """<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<body style="margin:0">{frames}
<pre id="found"></pre>
<script>onload = () => {{
  const scripts = {{{scripts}}};
  document.getElementById("found").textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(frame =>
    Object.fromEntries(Object.entries(scripts).map(
      ([name, script]) => [name, script(frame.contentDocument, frame.contentWindow)]))));
}}</script>"""
IFRAME = '<iframe src="{page}" style="width:{width}px;height:3000px;border:0;display:block"></iframe>'


def browse(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Chromium once with a new profile."""
    chromium = shutil.which("chromium")
    assert chromium, "Debian's package chromium is needed: make chromium"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [chromium, *OPTIONS, f"--user-data-dir={profile}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


def measure(page: Path, scripts: dict[str, str], *, width: int = 1200, dark: bool = False) -> dict[str, Any]:
    """Evaluate JavaScript functions of (document, window) at a page width; the result has the ``console`` too."""
    return measure_widths(page, scripts, [width], dark=dark)[width]


def measure_widths(
    page: Path, scripts: dict[str, str], widths: Sequence[int], *, dark: bool = False
) -> dict[int, dict[str, Any]]:
    """Evaluate JavaScript functions at several page widths in one Chromium; all results have the same ``console``."""
    return measure_pages([page], scripts, widths, dark=dark)[page]


def measure_pages(
    pages: Sequence[Path], scripts: dict[str, str], widths: Sequence[int], *, dark: bool = False
) -> dict[Path, dict[int, dict[str, Any]]]:
    """Evaluate JavaScript functions in pages at several widths in one Chromium.

    The ``console`` has the messages of the page, and those without the address of one of the pages.
    """
    written = ", ".join(f"{json.dumps(name)}: {script}" for name, script in scripts.items())
    frames = "\n".join(IFRAME.format(page=page.as_uri(), width=width) for page in pages for width in widths)
    with tempfile.TemporaryDirectory() as folder:
        holder = Path(folder, "frames.html")
        holder.write_text(FRAME.format(frames=frames, scripts=written), encoding="utf-8")
        done = browse("--dump-dom", *([DARK] if dark else []), holder.as_uri())
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match and match[1], done.stderr
    values = iter(json.loads(unescape(match[1])))
    lines = _console(done)
    foreign = [line for line in lines if not any(page.as_uri() in line for page in pages)]
    results = {}
    for page in pages:
        messages = foreign + [line for line in lines if page.as_uri() in line]
        results[page] = {width: next(values) | {"console": messages} for width in widths}
    return results


def _console(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line]
