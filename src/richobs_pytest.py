"""A plugin of pytest: the fixture `certified` makes a policy's value a test of a build (docs/policy-value.md).

richobs is imported when the fixture is used, so other tests do not wait for it.
"""

from collections.abc import Callable
from typing import Any

import pytest

REPORTS: "pytest.StashKey[list[tuple[str, str]]]" = pytest.StashKey()


@pytest.fixture
def certified(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Returns a function that fails the test unless a policy certainly earns `at_least`; it returns the report.

    `certified(env, policy, at_least=195, delta=0.01, max_episodes=2000)` takes all arguments of `richobs.certify_policy`,
    with `at_least` for `threshold`.
    """
    from richobs import certify_policy

    def check(env: Any, policy: Any, *, at_least: float, **options: Any) -> Any:
        report = certify_policy(env, policy, threshold=at_least, **{"progress": False, **options})
        line = f"{report.reason} ({report.episodes:,} episodes)"
        request.config.stash.setdefault(REPORTS, []).append((request.node.nodeid, line))
        if report.status == 1:
            pytest.fail(report.claim, pytrace=False)
        if report.status == 3:
            pytest.fail(
                f"not decided within {report.episodes:,} episodes whether the {report.subject} is at least {at_least:g}; "
                f"raise max_episodes, or lower the threshold. {report.claim}",
                pytrace=False,
            )
        return report

    return check


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Prints how many episodes each certified policy took."""
    reports = config.stash.get(REPORTS, [])
    if reports:
        terminalreporter.section("certified policies")
        for name, line in reports:
            terminalreporter.write_line(f"{name}: {line}")
