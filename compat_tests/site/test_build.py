"""The site is built from the pages without a warning, and its search works without a server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.console.browser import ENTER, Browser
from compat_tests.site.pages import DOCS, module, pages
from compat_tests.tools import ROOT, missing


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason="sphinx is not installed: make docs")
    folder = tmp_path_factory.mktemp("site")
    command = ["-q", "-W", "--keep-going", "-d", str(folder / "doctrees"), str(DOCS), str(folder / "html")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *command], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder / "html"


@pytest.mark.long
def test_every_page_is_built_and_led_to(site: Path) -> None:
    front = (site / "index.html").read_text()
    led_to = set(re.findall(r'<a class="reference internal" href="([^"#]+)\.html"', front))
    built = {str(path.relative_to(site).with_suffix("")) for path in site.rglob("*.html")}
    there = {str(path.relative_to(DOCS).with_suffix("")) for path in pages() if DOCS in path.parents}
    assert there <= built
    assert {page for chapter in module("conf.py").NAVIGATION.values() for page in chapter} & there <= led_to


@pytest.mark.long
def test_nothing_of_a_page_comes_from_another_host(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|source|iframe)[^>]+src="(https?:[^"]+)|<link[^>]+href="(https?:[^"]+)')
    assert [path.name for path in site.rglob("*.html") if loads.search(path.read_text())] == []


@pytest.mark.long
def test_the_search_has_its_words_in_a_script(site: Path) -> None:
    index = (site / "searchindex.js").read_text()
    assert index.startswith("Search.setIndex(")
    assert "watermark" in index
    assert "searchindex.js" in (site / "search.html").read_text()


@pytest.mark.long
def test_a_reader_finds_a_page_by_a_word(site: Path, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """The browser opens the site as files. `--screenshots` saves a picture of the front page as docs/site.png."""
    if reason := missing("chromium"):
        pytest.skip(reason)
    with Browser(tmp_path / "profile") as browser:
        browser.open((site / "index.html").as_uri())
        browser.until("document.querySelector('article img')?.complete")
        assert browser.run("document.querySelector('article img').naturalWidth") > 0
        if pytestconfig.getoption("--screenshots"):
            browser.screenshot(ROOT / "docs" / "site.png")
        browser.fill("input[name=q]", "frozen_disk" + ENTER)
        browser.until_text("barnabas in your tests", "#search-results")
        browser.click_text("barnabas in your tests", "#search-results a")
        browser.until("document.querySelector('h1')?.textContent.startsWith('barnabas in your tests')")
        assert browser.complaints() == []
