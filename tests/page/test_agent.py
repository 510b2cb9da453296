"""The page in a real browser, in front of a real agent."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from agent import Agent

PROGRAM = os.environ.get("HOLDALL_PROGRAM", "")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="no agent here: name one with HOLDALL_PROGRAM")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(PROGRAM, tmp_path)
    made.fill()
    yield made
    made.close()


def opened(tab: Page, agent: Agent, query: str = "") -> None:
    tab.goto(agent.url + query)
    tab.fill("input[name=token]", agent.token)
    tab.click("dialog button[type=submit]")
    expect(tab.locator("#link")).to_have_text("live")


def test_every_view_shows_what_there_is(tab: Page, agent: Agent) -> None:
    opened(tab, agent)
    status = agent.status()
    expect(tab.get_by_role("button", name=re.compile("drained by .*: fan broken"))).to_be_visible()
    expect(tab.get_by_role("button", name=re.compile("^front, reserved, .* left by"))).to_be_visible()
    expect(tab.locator(".row.waiting")).to_have_count(len(status["waiting"]))
    for row, waiting in zip(tab.locator(".row.waiting").all(), status["waiting"]):
        expect(row).to_contain_text(waiting["request"])
    expect(tab.locator(".row.grant")).to_have_count(len(status["grants"]))
    tab.locator(".row.waiting").first.click()
    expect(tab.locator("#details")).to_contain_text("Granted when these are given back")
    expect(tab.locator("#details")).to_contain_text("Nobody can tell")
    tab.get_by_role("button", name="Show the chain").click()
    expect(tab.locator(".node.chain").first).to_be_visible()
    tab.keyboard.press("3")
    # What is held was granted just now: bars at the right edge.
    drawn = "(c) => new Set(new Uint32Array(c.getContext('2d').getImageData(c.width - 12, 30, 12, 200).data.buffer)).size"
    tab.wait_for_function(f"() => ({drawn})(document.querySelector('canvas')) > 2")
    tab.keyboard.press("4")
    expect(tab.locator(".usage-card")).to_have_count(4)
    tab.keyboard.press("5")
    expect(tab.locator(".row.line", has_text="train the large model").first).to_be_visible()


def test_it_is_live_and_comes_back_after_a_crash(tab: Page, agent: Agent) -> None:
    opened(tab, agent)
    agent.call("hold", "meeting-room", "--for", "1h", "--reason", "<script>alert(1)</script>\u202eoops")
    expect(tab.get_by_role("button", name=re.compile("^meeting-room, reserved"))).to_be_visible()
    agent.kill()
    expect(tab.locator("#stale")).to_be_visible()
    agent.start()
    expect(tab.locator("#link")).to_have_text("live")
    expect(tab.get_by_role("button", name=re.compile("^meeting-room, reserved"))).to_be_visible()


def test_reserving_renewing_and_taking_away(tab: Page, agent: Agent) -> None:
    opened(tab, agent)
    tab.keyboard.press("r")
    tab.fill("dialog input[name=needs]", "gpu:9")
    tab.click("dialog button[type=submit]")
    expect(tab.locator("dialog .error")).to_contain_text("gpu")
    tab.fill("dialog input[name=needs]", "meeting-room")
    tab.fill("dialog input[name=reason]", "a meeting")
    tab.click("dialog button[type=submit]")
    tile = tab.get_by_role("button", name=re.compile("^meeting-room, reserved"))
    expect(tile).to_be_visible()
    tile.click()
    tab.get_by_role("button", name="Renew…").click()
    tab.fill("dialog input[name=for]", "3h")
    tab.click("dialog button[type=submit]")
    expect(tab.get_by_role("button", name=re.compile("^meeting-room, reserved, (3h00m|2h59m) left"))).to_be_visible()
    tab.get_by_role("button", name="Release…").click()
    tab.click("dialog button[type=submit]")
    expect(tile).to_have_count(0)
    other = next(grant for grant in agent.status()["grants"] if grant["who"]["from"]["reason"] == "migration")
    tab.get_by_role("button", name=re.compile("^db, held")).click()
    tab.get_by_role("button", name="Take away…").click()
    tab.fill("dialog input[name=reason]", "it hangs")
    tab.click("dialog button[type=submit]")
    agent.until(lambda: other["request"] not in [grant["request"] for grant in agent.status()["grants"]])
    tab.keyboard.press("Escape")
    tab.keyboard.press("5")
    expect(tab.locator(".row.line", has_text="forced").first).to_contain_text("it hangs")


def test_a_unit_with_a_name_of_its_own(tab: Page, agent: Agent) -> None:
    opened(tab, agent)
    tile = tab.get_by_role("button", name=re.compile("^left, "))
    tile.click()
    expect(tab.locator("#details h2")).to_have_text("board/left")
    tab.get_by_role("button", name="Drain…").click()
    tab.fill("dialog input[name=reason]", "a loose wire")
    tab.click("dialog button[type=submit]")
    expect(tab.get_by_role("button", name=re.compile("^left, drained by .*: a loose wire"))).to_be_visible()
    tab.get_by_role("button", name="Undrain").click()
    expect(tab.get_by_role("button", name=re.compile("^left, free"))).to_be_visible()
    tab.locator("#details").get_by_role("button", name="Reserve…").click()
    tab.click("dialog button[type=submit]")
    expect(tab.locator("dialog .error")).to_have_text("not free: board/left is wanted by 1 before")
    # What was done to it is among the events of its pool.
    tab.goto(agent.url + "?view=log&pool=board")
    tab.fill("input[name=token]", agent.token)
    tab.click("dialog button[type=submit]")
    expect(tab.locator(".row.line", has_text="drain board/left: a loose wire")).to_have_count(1)
    expect(tab.locator(".row.line", has_text="fan broken")).to_have_count(0)


def test_what_waits_for_the_page_can_be_withdrawn(tab: Page, agent: Agent) -> None:
    opened(tab, agent)
    tab.keyboard.press("r")
    tab.fill("dialog input[name=needs]", "db")
    tab.fill("dialog input[name=reason]", "a second thought")
    tab.check("dialog input[name=queue]")
    tab.click("dialog button[type=submit]")
    row = tab.locator(".row.waiting", has_text="a second thought")
    row.click()
    tab.get_by_role("button", name="Withdraw").click()
    expect(row).to_have_count(0)
    assert "a second thought" not in str(agent.status())
    # What waits for others cannot.
    tab.locator(".row.waiting").first.click()
    expect(tab.get_by_role("button", name="Show the chain")).to_be_visible()
    expect(tab.get_by_role("button", name="Withdraw")).to_have_count(0)


def test_a_wrong_token(tab: Page, agent: Agent) -> None:
    tab.goto(agent.url)
    tab.fill("input[name=token]", "wrong")
    tab.click("dialog button[type=submit]")
    expect(tab.locator("dialog .error")).to_have_text("This token is not known here.")
