"""Chromium, and a page of it that fails the test at any error in the console."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from stand_in import Server, World

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
# The machine may be busy; nothing here takes long otherwise.
expect.set_options(timeout=float(os.environ.get("PAGE_TIMEOUT_MS", "30000")))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Without its sandbox, since tests may run as root; the page is our own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def world() -> World:
    return World({"gpu": 8, "board": 4, "license/maya": 6, "node": 160}, waiting=12, full=True)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(world: World, **options: object) -> Server:
        servers.append(Server(world, **options))  # type: ignore[arg-type]
        return servers[-1]

    yield start
    for server in servers:
        if not server.over.is_set():
            server.stop()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """A page in a window of its own. What a page must not do fails the test: errors, dialogs, requests elsewhere."""
    context = browser.new_context(viewport={"width": 1400, "height": 860}, locale="en-GB")
    page = context.new_page()
    page.set_default_timeout(float(os.environ.get("PAGE_TIMEOUT_MS", "30000")))
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    page.on("console", lambda said: wrong.append(said.text) if _matters(said.type, said.text) else None)
    page.on("request", lambda request: wrong.append(f"request: {request.url}") if _elsewhere(request.url) else None)
    yield page
    context.close()
    assert not wrong


def _matters(kind: str, text: str) -> bool:
    """Browsers tell every refused or failed request as an error, also those that the page expects."""
    return kind == "error" and not text.startswith("Failed to load resource")


def _elsewhere(url: str) -> bool:
    return not url.startswith("http://127.0.0.1:")
