"""Marks and the fixture, as a user's tests use them."""

from __future__ import annotations

import pytest

import holdall

from .conftest import Agent, is_free


def test_marks_hold_what_a_test_needs(agent: Agent, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import contextvars, pytest, holdall

        def is_free(need):
            try:
                contextvars.Context().run(lambda: holdall.acquire(need, wait=0).release())
            except holdall.NotGranted:
                return False
            return True

        @pytest.mark.holdall("board", "scope:shared", reason="boot test")
        def test_with_the_fixture(grant):
            assert grant.units["board"][0].startswith("board/") and not is_free("scope") and is_free("board")

        @pytest.mark.holdall("scope")
        def test_with_a_mark_alone():
            assert not is_free("scope")

        @pytest.mark.holdall("board")
        class TestAll:
            @pytest.mark.holdall("scope", "board")
            def test_of_a_class(self, grant):
                assert set(grant.units) == {"board", "scope"}

            @pytest.mark.holdall("board:shared", "scope:shared")
            def test_what_one_mark_shares_and_another_does_not(self, grant):
                assert set(grant.units) == {"board", "scope"} and grant.units["board"][0] != "board"

        def test_without_a_mark():
            assert is_free("scope") and is_free("board:2")
    """)
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "--strict-markers").assert_outcomes(passed=5)
    assert is_free("board:2")


def test_what_is_wrong_is_said(agent: Agent, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        def test_without_a_mark(grant): pass

        @pytest.mark.holdall("board", patience=3)
        def test_with_an_option_that_does_not_exist(): pass

        @pytest.mark.holdall("board:9")
        def test_that_can_never_run(): pass

        @pytest.mark.holdall("scope")
        def test_that_waits_too_long(): pass
    """)
    pytester.makeini("[pytest]\nholdall_wait = 0.2")
    with holdall.hold("scope"):
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(["*a mark says what*", "*no option 'patience'*", "*NeverGranted*", "*NotGranted*"])


def test_a_wait_that_is_no_number_is_said(agent: Agent, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.holdall('scope')\ndef test_it(): pass")
    pytester.makeini("[pytest]\nholdall_wait = soon")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*holdall_wait is a number of seconds, not 'soon'*"])


def test_workers_take_turns(agent: Agent, pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile("""
        import os, pathlib, time, pytest

        @pytest.mark.parametrize("n", range(12))
        @pytest.mark.holdall("bench")
        def test_alone(n, grant):
            mine = pathlib.Path("inside")
            mine.touch(exist_ok=False)
            time.sleep(0.01)
            mine.unlink()
    """)
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "3").assert_outcomes(passed=12)
