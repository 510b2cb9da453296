"""The page in a real browser, in front of a stand-in for an agent."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from stand_in import Server, World

Serve = Callable[..., Server]


def opened(tab: Page, server: Server, query: str = "") -> Page:
    tab.goto(server.url + query)
    if server.token:
        tab.fill("input[name=token]", server.token)
        tab.click("dialog button[type=submit]")
    expect(tab.locator("#link")).to_have_text("live")
    return tab


def expect_asked(tab: Page, **wanted: str) -> None:
    """The address says that, and nothing else."""
    tab.wait_for_url(lambda url: parse_qs(urlsplit(url).query) == {key: [value] for key, value in wanted.items()})


def test_the_overview_shows_pools_the_queue_and_holders(tab: Page, serve: Serve, world: World) -> None:
    world.drained["gpu/5"] = {"reason": "fan broken", "by": "lab", "until": None}
    opened(tab, serve(world))
    first, held = next(iter(world.waiting)), world.pool_views()[1]["units"][0]["holder"]
    expect(tab.get_by_role("button", name=re.compile(r"^gpu\/0, held by "))).to_be_visible()
    expect(tab.get_by_role("button", name=re.compile(r"^gpu\/5, held by .*drained by lab: fan broken"))).to_be_visible()
    expect(tab.locator(".row.waiting").first).to_contain_text(first)
    expect(tab.locator(".row.waiting").first.locator(".because")).to_contain_text("held by 3-")
    tab.get_by_role("button", name=re.compile(r"^gpu\/0, held by ")).click()
    expect(tab.locator("#details h2")).to_have_text(f"Grant {held}")
    expect_asked(tab, selected=held)
    expect(tab).to_have_title(re.compile(rf"{len(world.grants)} held, {len(world.waiting)} waiting"))


def test_it_is_live(tab: Page, serve: Serve, world: World) -> None:
    opened(tab, serve(world, token=None))
    before = len(world.grants)
    expect(tab.locator("#counts")).to_contain_text(f"{before} held")
    world.end(next(number for number, grant in world.grants.items() if grant["needs"][0].startswith("node")))
    expect(tab.locator("#counts")).to_contain_text(f"{len(world.grants)} held")
    tab.keyboard.press("5")
    expect(tab.locator(".row.line").first).to_be_visible()
    number = world.ask(["board:4"])
    world.tell_change()
    expect(tab.locator(".row.line").first).to_contain_text(number)


def test_it_comes_back_when_the_agent_does(tab: Page, serve: Serve, world: World) -> None:
    server = serve(world)
    opened(tab, server)
    port = server.server_port
    server.stop()
    expect(tab.locator("#link")).to_have_text("reconnecting")
    expect(tab.locator("#stale")).to_contain_text("has not answered since")
    expect(tab.locator(".tile").first).to_be_visible()
    world.ask(["missed"])
    serve(world, port=port)
    expect(tab.locator("#link")).to_have_text("live")
    expect(tab.locator("#stale")).to_be_hidden()
    expect(tab.get_by_role("button", name=re.compile("^missed, held"))).to_be_visible()


def test_a_wrong_token_is_told_and_a_right_one_is_kept_nowhere(tab: Page, serve: Serve, world: World) -> None:
    server = serve(world)
    tab.goto(server.url + "?view=graph&selected=3-1")
    expect(tab.locator("dialog")).to_contain_text("holdall token add")
    expect(tab.locator(".panel-graph .hint")).to_be_empty()
    expect(tab.locator("#details")).to_be_hidden()
    tab.goto(server.url)
    expect(tab.locator("#link")).to_have_text("wants a token")
    # What is not known yet is not said to be nothing.
    expect(tab.locator(".panel-queue .nothing")).to_be_hidden()
    expect(tab.locator("#stale")).to_be_hidden()
    tab.fill("input[name=token]", "wrong")
    tab.click("dialog button[type=submit]")
    expect(tab.locator("dialog .error")).to_have_text("This token is not known here.")
    tab.keyboard.press("Escape")
    expect(tab.locator("dialog")).to_be_visible()
    # The right one is typed over it.
    tab.keyboard.type("secret")
    tab.keyboard.press("Enter")
    expect(tab.locator(".tile").first).to_be_visible()
    kept = tab.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])")
    assert "secret" not in kept
    tab.reload()
    expect(tab.locator("input[name=token]")).to_be_visible()


HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "\u202eesrever\u2066 \u200bhidden\u0007\u001b[31m",
    "x" * 10_000,
    "\"><svg onload=alert(3)>&amp;{{7*7}}${alert(4)}",
    "javascript:alert(5)",
]


@pytest.mark.parametrize("text", HOSTILE, ids=["markup", "direction", "long", "quotes", "address"])
def test_hostile_texts_are_shown_harmlessly(tab: Page, serve: Serve, text: str) -> None:
    world = World({"gpu": 4}, waiting=0, full=True)
    for grant in world.grants.values():
        grant["who"] = {**grant["who"], "user": text, "host": text, "from": {"command": text, "name": text, "reason": text}}
    who = next(iter(world.grants.values()))["who"]
    number = world.ask(["gpu:3"], who=who)
    world.drained["gpu/1"] = {"reason": text, "by": text, "until": None}
    opened(tab, serve(world, token=None))
    for view in "12345":
        tab.keyboard.press(view)
        tab.wait_for_timeout(300)
        for selected in (number, "unit:gpu/1", next(iter(world.grants))):
            tab.evaluate("(what) => { history.pushState(null, '', `?selected=${what}`); dispatchEvent(new Event('popstate')); }", selected)
            tab.keyboard.press(view)
            expect(tab.locator("#details h2")).to_be_visible()
    assert tab.locator("main script, main img, #details script, #details img, [onerror], [onload]").count() == 0
    shown = tab.evaluate("document.body.innerText + [...document.querySelectorAll('[title], [aria-label]')].map((e) => e.title + e.ariaLabel).join()")
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\u0007\u001b]", shown)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1400
    if text.startswith("<script>"):
        expect(tab.locator("#details")).to_contain_text("<script>alert(1)</script>")


def test_filters_are_in_the_address(tab: Page, serve: Serve, world: World) -> None:
    server = serve(world, token=None)
    opened(tab, server)
    tab.fill("#filter-pool", "gpu")
    expect(tab.locator(".pool-name")).to_have_count(1)
    tab.fill("#filter-text", "night")
    tab.fill("#filter-user", "anna")
    expect_asked(tab, pool="gpu", text="night", user="anna")
    expect(tab.locator(".row.grant", has_not_text="anna")).to_have_count(0)
    address = tab.url
    tab.click("#filter-none")
    expect_asked(tab)
    opened(tab, server, address.removeprefix(server.url))
    expect(tab.locator("#filter-text")).to_have_value("night")
    tab.keyboard.press("2")
    tab.keyboard.press("4")
    tab.go_back()
    expect_asked(tab, view="graph", pool="gpu", text="night", user="anna")
    expect(tab.locator("nav [aria-current]")).to_have_text("Graph")


def test_the_graph_shows_the_chain_of_a_request(tab: Page, serve: Serve, world: World) -> None:
    number = list(world.waiting)[3]
    opened(tab, serve(world), f"?view=graph&selected={number}")
    chain = world.explain(number)
    expect(tab.locator(".node.selected")).to_contain_text(number)
    expect(tab.locator(".node.chain")).to_have_count(len(chain["chain"]) + len(chain["release"]))
    expect(tab.locator(".edge.chain")).not_to_have_count(0)
    shown = [text.split()[0] for text in tab.locator(".node.waiting .node-what").all_text_contents()]
    assert shown == [waiting for waiting in world.waiting if waiting in shown], "in the order of service"
    expect(tab.locator("#details")).to_contain_text(chain["release"][0]["request"])
    expect(tab.locator("#details")).to_contain_text(re.compile(r"Granted, probablyhalf\d\d:\d\d:\d\d to .*nine of ten"))
    tab.locator(".node.waiting").first.hover()
    expect(tab.locator(".edge.near")).not_to_have_count(0)
    tab.locator(".node.held").first.press("Enter")
    expect(tab.locator("#details h2")).to_contain_text("Grant")


def test_timeline_and_usage_come_from_the_audit_log(tab: Page, serve: Serve, world: World) -> None:
    opened(tab, serve(world, token=None), "?view=timeline&hours=1")
    expect(tab.locator("[data-hours='1']")).to_have_attribute("aria-pressed", "true")
    canvas = tab.locator(".timeline-scroll canvas")
    expect(canvas).to_be_visible()
    drawn = "(c) => new Set(new Uint32Array(c.getContext('2d').getImageData(200, 30, c.width - 210, 200).data.buffer)).size"
    tab.wait_for_function(f"() => ({drawn})(document.querySelector('canvas')) > 10")
    box = canvas.bounding_box()
    assert box
    tab.mouse.move(box["x"] + box["width"] - 12, box["y"] + 35)
    expect(tab.locator(".tip")).to_contain_text("still held")
    tab.mouse.click(box["x"] + box["width"] - 12, box["y"] + 35)
    expect(tab.locator("#details h2")).to_contain_text("Grant")
    tab.keyboard.press("4")
    expect(tab.locator(".usage-card")).to_have_count(4)
    expect(tab.locator(".usage-card").first).to_contain_text(re.compile(r"[1-9]\d* %"))


def test_whoever_waits_for_a_pool_is_counted_whatever_else_keeps_it(tab: Page, serve: Serve) -> None:
    world = World({"board": 2, "scope": 1})
    world.grants, world.holder, world.waiting = {}, {}, {}
    world.ask(["scope:1"])
    number = world.ask(["board:1", "scope:1"], at=world.now() - 60_000)
    assert [one["need"] for one in world.wait_views()[0]["hindrances"]] == ["scope:1"] and number in world.waiting
    opened(tab, serve(world, token=None), "?view=usage&pool=board")
    longest = tab.locator(".usage-card .figure", has_text="longest now").locator("b")
    expect(longest).to_have_text(re.compile(r"^1m"))


def test_whose_past_is_not_told_is_somebodys(tab: Page, serve: Serve, world: World) -> None:
    """Who may view sees what became of units, and not who others were."""
    number = next(line["request"] for line in reversed(world.audit) if line["what"] == "released")
    for line in world.audit:
        line.pop("who", None)
        line.pop("detail", None)
    grants, world.grants = world.grants, {}
    opened(tab, serve(world, token=None), "?view=timeline&hours=4")
    drawn = "(c) => new Set(new Uint32Array(c.getContext('2d').getImageData(200, 30, c.width - 210, 200).data.buffer)).size"
    tab.wait_for_function(f"() => ({drawn})(document.querySelector('canvas')) > 3")
    tab.keyboard.press("4")
    expect(tab.locator(".usage-card").first).to_contain_text(re.compile(r"[1-9]\d* %"))
    tab.keyboard.press("5")
    expect(tab.locator(".row.line").first).to_be_visible()
    tab.fill("#filter-text", number)
    expect(tab.locator(".row.line", has_text="released").first).to_contain_text(number)
    world.grants = grants


def test_what_is_held_lasts_also_if_the_log_is_read_before_anything_else_is_known(tab: Page, serve: Serve, world: World) -> None:
    server = serve(world, token=None)
    server.talks.clear()
    tab.goto(server.url + "?view=timeline&hours=1")
    drawn = "(c) => new Set(new Uint32Array(c.getContext('2d').getImageData(200, 30, c.width - 210, 200).data.buffer)).size"
    tab.wait_for_function(f"() => ({drawn})(document.querySelector('canvas')) > 10")
    server.talks.set()
    expect(tab.locator("#link")).to_have_text("live")
    box = tab.locator(".timeline-scroll canvas").bounding_box()
    assert box
    tab.mouse.move(box["x"] + box["width"] - 12, box["y"] + 35)
    expect(tab.locator(".tip")).to_contain_text("still held")


def test_what_was_missed_is_read_from_the_log(tab: Page, serve: Serve, world: World) -> None:
    server = serve(world, token=None)
    opened(tab, server, "?view=log")
    expect(tab.locator(".row.line").first).to_be_visible()
    server.stop()
    expect(tab.locator("#stale")).to_be_visible()
    world.ask(["missed"], who=world.who(user="grace"))
    serve(world, port=server.server_port, token=None, forgets=True)
    expect(tab.locator("#link")).to_have_text("live")
    expect(tab.locator(".row.line", has_text="grace").first).to_be_visible()


def test_the_log_is_searched_and_goes_back(tab: Page, serve: Serve, world: World) -> None:
    opened(tab, serve(world, token=None), "?view=log")
    lines = len(world.audit)
    assert lines > 300
    tab.locator(".panel-log .virtual").focus()
    for _ in range(40):
        tab.keyboard.press("End")
        tab.wait_for_timeout(50)
        if tab.locator(".panel-log .panel-count").inner_text() == str(lines):
            break
    expect(tab.locator(".panel-log .panel-count")).to_have_text(str(lines))
    number = next(iter(world.waiting))
    tab.fill("#filter-text", f'"{number}"')
    expect(tab.locator(".row.line")).to_have_count(1)


def test_what_the_token_allows(tab: Page, serve: Serve, world: World) -> None:
    mine, other = list(world.grants)[:2]
    world.grants[mine].update(state="reserved", until=world.now() + 60_000)
    world.grants[mine]["who"] = {**world.grants[mine]["who"], "user": "anna"}
    world.grants[other]["who"] = {**world.grants[other]["who"], "user": "ben"}
    server = serve(world, token=None)

    opened(tab, server, f"?selected={mine}")
    tab.get_by_role("button", name="Renew…").click()
    tab.fill("dialog input[name=for]", "soon")
    tab.click("dialog button[type=submit]")
    expect(tab.locator("dialog .error")).to_contain_text("is a time like")
    tab.fill("dialog input[name=for]", "1h30m")
    tab.click("dialog button[type=submit]")
    expect(tab.locator("dialog")).to_have_count(0)
    assert world.calls[-1] == ("POST", f"/v1/grants/{mine}/renew", {"reserve_ms": 5_400_000})

    tab.get_by_role("button", name="Release…").click()
    tab.click("dialog button[type=submit]")
    expect(tab.locator("#details")).to_contain_text("This is over")
    assert world.calls[-1][:2] == ("DELETE", f"/v1/grants/{mine}")

    opened(tab, server, f"?selected={other}")
    tab.get_by_role("button", name="Take away…").click()
    tab.click("dialog button[type=submit]")
    expect(tab.locator("dialog")).to_be_visible()  # A reason is asked for.
    tab.fill("dialog input[name=reason]", "it hangs")
    tab.click("dialog button[type=submit]")
    expect(tab.locator("#details")).to_contain_text("This is over")
    assert world.calls[-1][:2] == ("DELETE", f"/v1/grants/{other}?force=true&reason=it+hangs")

    world.rights = ["view"]
    others = next(number for number, grant in world.grants.items() if grant["who"]["user"] != "anna")
    opened(tab, server, f"?selected={others}")
    expect(tab.locator("#details dl")).to_be_visible()
    expect(tab.locator("#details .buttons button")).to_have_count(0)
    expect(tab.locator("#reserve")).to_be_hidden()


def test_reserving_and_draining(tab: Page, serve: Serve, world: World) -> None:
    opened(tab, serve(world, token=None))
    tab.keyboard.press("r")
    tab.fill("dialog input[name=needs]", "gpu:2")
    tab.click("dialog button[type=submit]")
    expect(tab.locator("dialog .error")).to_have_text("not free: gpu:2")
    tab.fill("dialog input[name=needs]", "meeting-room")
    tab.fill("dialog input[name=for]", "2h")
    tab.click("dialog button[type=submit]")
    expect(tab.get_by_role("button", name=re.compile("^meeting-room, reserved, "))).to_be_visible()
    opened(tab, serve(world, token=None), "?selected=unit:gpu/3")
    tab.get_by_role("button", name="Drain…").click()
    tab.fill("dialog input[name=reason]", "new fan")
    tab.click("dialog button[type=submit]")
    expect(tab.locator("#details")).to_contain_text("drained by anna: new fan")
    tab.get_by_role("button", name="Undrain").click()
    expect(tab.locator("#details")).not_to_contain_text("new fan")


def test_keys(tab: Page, serve: Serve, world: World) -> None:
    opened(tab, serve(world, token=None))
    tab.keyboard.press("/")
    expect(tab.locator("#filter-text")).to_be_focused()
    tab.keyboard.press("Escape")
    tab.locator(".panel-queue .virtual").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        tab.keyboard.press(key)
    expect_asked(tab, selected=list(world.waiting)[1])
    tab.keyboard.press("Escape")
    expect(tab.locator("#details")).to_be_hidden()
    tab.locator(".tile").first.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    expect(tab.locator("#details")).to_be_visible()
    tab.keyboard.press("?")
    expect(tab.get_by_role("dialog")).to_contain_text("Keys")
    tab.get_by_role("button", name="Close").last.click()
    expect(tab.get_by_role("dialog")).to_have_count(0)


def test_dark_and_light(tab: Page, serve: Serve, world: World) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    tab.emulate_media(color_scheme="dark")
    opened(tab, serve(world, token=None))
    dark = tab.evaluate(ground)
    tab.keyboard.press("t")
    light = tab.evaluate(ground)
    assert dark != light
    tab.reload()
    assert tab.evaluate(ground) == light


def test_on_a_phone(tab: Page, serve: Serve, world: World) -> None:
    tab.set_viewport_size({"width": 360, "height": 740})
    opened(tab, serve(world, token=None))
    for view in range(5):
        tab.locator("nav a").nth(view).click()
        tab.wait_for_timeout(200)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        if tab.locator(".row.line").count():
            expect(tab.locator(".row.line .who").first).to_be_visible()
            boxes = [row.bounding_box() for row in tab.locator(".row.line").all()[:2]]
            assert boxes[0] and boxes[1] and boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"] + 1, "one below the other"
        if tab.locator(".graph-drawing").count():
            # Who waits and who holds are seen side by side.
            expect(tab.locator(".node.held").first).to_be_attached()
            assert tab.evaluate("(d => d.scrollWidth - d.clientWidth)(document.querySelector('.graph-drawing'))") <= 0
    tab.locator("nav a").first.click()
    tab.locator(".row.waiting").first.click()
    expect(tab.locator("#details")).to_be_in_viewport()


def test_a_thousand_units_and_ten_thousand_waiting(tab: Page, serve: Serve, record_property: Callable[[str, object], None]) -> None:
    world = World({f"pool{n}": 100 for n in range(10)}, waiting=10_000, full=True)
    opened(tab, serve(world, token=None))
    expect(tab.locator(".panel-queue .panel-count")).to_have_text("10000")
    tab.evaluate("""() => {
        window.spans = [];
        let last = performance.now();
        const frame = (now) => { window.spans.push(now - last); last = now; requestAnimationFrame(frame); };
        requestAnimationFrame(frame);
    }""")
    box = tab.locator(".panel-queue .virtual").bounding_box()
    assert box
    tab.mouse.move(box["x"] + 50, box["y"] + 50)
    for _ in range(20):
        tab.mouse.wheel(0, 20_000)
        world.stir()
        tab.wait_for_timeout(100)
    expect(tab.locator(".row.waiting").last).to_contain_text(re.compile("3-"))
    assert tab.locator(".row.waiting").count() < 60
    assert tab.locator(".tile").count() < 1100
    tab.fill("#filter-text", "night run")
    expect(tab.locator(".panel-queue .panel-count")).to_contain_text(" of 100")
    spans = sorted(tab.evaluate("window.spans"))
    median, most = spans[len(spans) // 2], spans[-1]
    record_property("frame_median_ms", median)
    print(f"1,000 units, 10,000 waiting: {len(spans)} frames, median {median:.0f} ms, longest {most:.0f} ms")
