"""Tests that hold what they need.

::

    @pytest.mark.holdall("board", "scope:shared", reason="boot test")
    def test_boots(grant):
        print(grant.units["board"])

Everything that the marks of a test, its class and its module name is asked for in one request, before the test begins,
and given back after it: tests of several workers (pytest-xdist), runs and machines' users wait for each other and never
deadlock. A mark alone does it; the fixture ``grant`` is for whoever wants to know the units.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ._client import hold
from ._grant import Grant

_MARK = "holdall"
_OPTIONS = ("wait", "name", "reason", "ttl", "limit", "agent", "url", "token")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long tests wait."""
    parser.addini("holdall_wait", "how many seconds a test waits for what it needs [default: as long as it takes]")


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known."""
    config.addinivalue_line(
        "markers",
        "holdall(*needs, wait=None, name=None, reason=None, ttl=30, limit=None): hold these while the test runs, "
        "for example holdall('board', 'scope:shared')",
    )


@pytest.fixture
def grant(request: pytest.FixtureRequest) -> Iterator[Grant]:
    """What the marks of this test name, held while it runs."""
    needs, options = _wanted(request.node)
    if not needs:
        pytest.fail("a mark says what is to be held: @pytest.mark.holdall('board')", pytrace=False)
    waits = request.config.getini("holdall_wait")
    if waits and "wait" not in options:
        options["wait"] = _seconds(waits)
    options.setdefault("name", "pytest")
    options.setdefault("reason", request.node.nodeid)
    with hold(*needs, **options) as held:
        yield held


@pytest.fixture(autouse=True)
def _holdall_marked(request: pytest.FixtureRequest) -> None:
    """A mark holds, whether or not the test asks for the fixture."""
    if request.node.get_closest_marker(_MARK) is not None:
        request.getfixturevalue("grant")


def _wanted(node: Any) -> tuple[list[str], dict[str, Any]]:
    """All needs of a test, each once, and what was said about them; the nearest mark wins."""
    needs: list[str] = []
    options: dict[str, Any] = {}
    for mark in node.iter_markers(_MARK):
        unknown: str | None = next((key for key in mark.kwargs if key not in _OPTIONS), None)
        if unknown is not None:
            pytest.fail(f"holdall has no option {unknown!r}; there are {', '.join(_OPTIONS)}", pytrace=False)
        needs.extend(need for need in mark.args if need not in needs)
        options = {**mark.kwargs, **options}
    # What one mark shares and another does not is not shared.
    alone = [need for need in needs if f"{need}:shared" in needs]
    return [need for need in needs if need not in [f"{one}:shared" for one in alone]], options


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pytest.fail(f"holdall_wait is a number of seconds, not {text!r}", pytrace=False)
