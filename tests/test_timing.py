"""Stages are followed on their thread, the innermost last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from traceview.base.timing import Stages, followed, stage


def test_the_open_stages_are_those_of_one_thread() -> None:
    with followed() as stages:
        with stage("outer"), stage("inner", "1 of 2"):
            assert stages == [("outer", ""), ("inner", "1 of 2")]

            def elsewhere() -> Stages:
                with stage("beside"):
                    return list(stages)

            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(elsewhere).result() == stages
        assert stages == []
    with stage("nobody asks"):
        assert stages == []
