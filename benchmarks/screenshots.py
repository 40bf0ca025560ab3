"""Takes the documentation's pictures of the report: a betting run on the lock with five levels, on screen and phone.

Run with `python benchmarks/screenshots.py`; it writes `docs/figures/report.png` and `docs/figures/report-phone.png`. It
needs Chromium (`apt-get install chromium`) and Playwright (`pip install playwright`), which downloads nothing here.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

import richobs
from richobs.runs.store import StoredRun, keep_verification
from richobs.show import write_report

TARGET = Path(__file__).resolve().parents[1] / "docs" / "figures"
LARGEST = 400_000  # bytes of a picture


def main() -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("no chromium, chromium-browser or google-chrome on the PATH (apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), sync_playwright() as tools:
        (page,) = write_report([betting_run(Path("runs/lock-5"))], Path("report.html"), figures=False)
        browser = tools.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take(browser, page, "report.png", width=1280, height=1500, scale=1.25)
        take(browser, page, "report-phone.png", width=360, height=1560, scale=1.5)
        browser.close()


def betting_run(folder: Path) -> StoredRun:
    problem = richobs.make("lock/5")
    outcome = richobs.learn(problem, learner="betting", epsilon=0.1, delta=0.05, seed=0, out=folder, progress=False)
    keep_verification(folder, richobs.verify(richobs.Certificate.of(outcome, problem), problem))
    return StoredRun.read(folder)


def take(browser: Browser, page: Path, name: str, *, width: int, height: int, scale: float) -> None:
    """Takes one picture of the top of the page."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, device_scale_factor=scale, color_scheme="light"
    )
    tab = context.new_page()
    tab.goto(page.resolve().as_uri())
    tab.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
    tab.wait_for_timeout(300)
    tab.screenshot(path=TARGET / name)
    context.close()
    size = (TARGET / name).stat().st_size
    print(f"written to {(TARGET / name).relative_to(TARGET.parents[1])}, {size:,} bytes")
    if size > LARGEST:
        raise SystemExit(f"{name} has more than {LARGEST:,} bytes")


if __name__ == "__main__":
    main()
