"""Pages in a headless Chromium."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

__all__ = ["FLAGS", "browser", "drawn", "missing", "program", "until"]

# Without what a browser asks of the network by itself; a container has no sandbox of its own to give.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str | None:
    """Path of the browser."""
    return os.environ.get("PARITY_TEST_BROWSER") or next(filter(None, map(shutil.which, _NAMES)), None)


def missing() -> str | None:
    """Why no page can be opened here, or None."""
    found = program()
    if found is None:
        return "no Chromium: apt-get install chromium, or name one with PARITY_TEST_BROWSER"
    return None if shutil.which(found) else f"no Chromium: {found} is no program"


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that ends with the block."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program(), args=list(FLAGS))
        yield started
        started.close()


def until(page: Page, expression: str, seconds: float = 30) -> None:
    """Wait for an expression to be true; playwright's own waiting needs what the policy of a report forbids."""
    for _ in range(int(seconds * 50)):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never true: {expression}")


def drawn(page: Page, path: Path) -> Page:
    """Open a report and wait until every figure in sight is drawn."""
    page.goto(path.as_uri())
    until(
        page,
        "[...document.querySelectorAll('.plot')].every((one) => one.querySelector('.main-svg')"
        " || one.getBoundingClientRect().top > innerHeight || !one.checkVisibility())",
    )
    return page
