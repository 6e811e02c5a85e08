"""The Chromium of the system, for tests of what a browser shows."""

import os
import shutil
from contextlib import contextmanager

import pytest
from playwright.sync_api import sync_playwright

BROWSERS = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
CHROMIUM = next(filter(None, BROWSERS), None)


@contextmanager
def running_chromium(*arguments):
    """A running Chromium without a window."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: install the system's package `chromium`")
    arguments = [*arguments, "--disable-background-networking", "--disable-component-update"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # Chromium's sandbox refuses to run as root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def chromium():
    """A running Chromium that draws without a GPU."""
    with running_chromium("--disable-gpu") as browser:
        yield browser
