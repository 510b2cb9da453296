"""Pictures of the page, taken from a running agent: `pictures.py HOLDALL FOLDER`; see `pictures`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from agent import Agent
from conftest import CHROMIUM


PICTURES = [
    ("overview", "", "light", (1280, 720)),
    ("graph", "?view=graph", "dark", (1280, 720)),
    ("phone", "", "dark", (390, 720)),
]


def main(program: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        agent = Agent(program, Path(directory))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            agent.fill()
            for name, query, scheme, (width, height) in PICTURES:
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, locale="en-GB")  # type: ignore[arg-type]
                page.goto(agent.url + query)
                page.fill("input[name=token]", agent.token)
                page.click("dialog button[type=submit]")
                page.wait_for_selector(".tile, .node")
                if name == "graph":
                    page.locator(".node.waiting").nth(1).click()
                    page.wait_for_selector(".node.chain")
                    page.mouse.move(1, 1)  # What one points at stands out, too.
                time.sleep(1)
                page.screenshot(path=folder / f"{name}.png")
        finally:
            browser.close()
            agent.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
