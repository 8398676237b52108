"""How large the report of a replay is, how long it takes to write, and how long a browser takes to open it.

    python -m benchmarks.report_load FOLDER...

Each folder holds the results of a replay. The page is opened in Chromium without a window, on a wide screen and on a phone,
some times over; told is the median until everything is loaded and the script has run. Exit status 1 if a bar is missed: 5 MB,
2 s, an error of the script.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from allocator.pages import build_report

MOST_BYTES = 5_000_000
MOST_SECONDS = 2.0
WIDTHS = {"wide": 1100, "phone": 360}


def open_page(browser: Browser, address: str, width: int, errors: list[str]) -> float:
    """Seconds until the page is loaded, as the browser has it."""
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address, wait_until="load")
    took: float = page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart")
    page.close()
    return took / 1000


def measure(browser: Browser, folder: Path, repeat: int) -> bool:
    """Print what there is to say of one replay; True if all bars are kept."""
    begun = time.perf_counter()
    page = build_report([folder]).encode()
    wrote = time.perf_counter() - begun
    errors: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "report.html"
        path.write_bytes(page)
        took = {
            name: statistics.median(open_page(browser, path.as_uri(), width, errors) for _ in range(repeat))
            for name, width in WIDTHS.items()
        }
    times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in took.items())
    print(f"{folder}: {len(page) / 1e6:.2f} MB, written in {wrote:.1f} s, opened in {times}, {len(errors)} errors")
    return len(page) <= MOST_BYTES and max(took.values()) <= MOST_SECONDS and not errors


def main() -> None:
    """Measure all folders; leaves by SystemExit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    program = shutil.which("chromium")
    if program is None:
        sys.exit("chromium is not installed: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        kept = [measure(browser, folder, args.repeat) for folder in args.folders]
        browser.close()
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
