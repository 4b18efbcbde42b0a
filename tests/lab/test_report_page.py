"""The HTML report in a real browser: no error, nothing cut off, the same figures as the command line."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.lab import registry
from atoll.lab.calc import per_file
from tests.lab import made

pytest.importorskip("jinja2")
pytest.importorskip("vl_convert")
pytest.importorskip("websockets")

from tests.lab.browser import Page, browser

if shutil.which("chromium") is None:
    pytest.skip("chromium is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The report of a record that holds everything, opened."""
    folder = tmp_path_factory.mktemp("page")
    file: Path = folder / "report.html"
    file.write_text(registry.report("html").render([made.full(), made.full()]), encoding="utf-8")
    with browser(folder) as opened:
        opened.load(file)
        yield opened


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_it_fits_and_can_be_read_in_both_themes(page: Page, width: int, theme: str) -> None:
    page.show(width, theme)
    assert page.value("document.documentElement.scrollWidth") <= width
    paper = page.value("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(21, 23, 26)") == (theme == "dark")
    # The colours of a picture come from the theme too, and its text keeps its size.
    shown = "[...document.querySelectorAll('figure svg')].filter(svg => svg.getBoundingClientRect().width)"
    colour = page.value(f"getComputedStyle({shown}[0].querySelector('.median')).fill")
    assert colour == ("rgb(109, 179, 242)" if theme == "dark" else "rgb(11, 98, 164)")
    scale = page.value(
        f"Math.min(...{shown}.map(s => s.getBoundingClientRect().width / s.viewBox.baseVal.width))"
    )
    assert scale > 0.9
    # One of the two drawings of each picture is shown.
    assert page.value(f"{shown}.length * 2") == page.value("document.querySelectorAll('figure svg').length")
    assert not page.complaints()


def test_it_fits_on_paper_whatever_the_theme_of_the_screen(page: Page) -> None:
    page.show(720, "dark", "print")
    assert page.value("document.documentElement.scrollWidth") <= 720
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.value("getComputedStyle(document.querySelector('.median')).fill") == "rgb(11, 98, 164)"
    assert page.value("document.querySelector('form').getBoundingClientRect().width") == 0


def test_the_calculator_works_out_what_the_command_does(page: Page) -> None:
    page.value(
        "for (const [name, value] of Object.entries({files: 18602, local: 10.7, other: 12.4, rtt: 0.5}))"
        " document.forms[0][name].value = value;"
        "document.forms[0].dispatchEvent(new Event('input', {bubbles: true}))"
    )
    expected = per_file(18602, 12.4, 10.7, 0.0005)
    found = {
        name: page.value(f"document.querySelector('[data-answer={name}]').textContent")
        for name in ("each", "wait", "trips")
    }
    assert expected.wait and expected.round_trips
    assert found["each"] == f"{expected.other * 1000:.3f} ms"
    assert found["wait"] == f"{expected.wait * 1000:.4f} ms"
    assert found["trips"] == f"{expected.round_trips:.3f}"
    # A job of the report fills it with its own numbers.
    page.value(
        "document.forms[0].job.selectedIndex = 1;"
        "document.forms[0].job.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    assert page.value("document.forms[0].files.value") == "1000"
    assert page.value("Number(document.forms[0].other.value)") == pytest.approx(1.32, rel=0.1)
    assert not page.complaints()


def test_the_keyboard_steps_through_a_picture(page: Page) -> None:
    page.show(1400, "light")
    page.value("document.querySelector('figure .wide svg').focus()")
    for _ in range(2):
        page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowDown")
    said = page.value("document.querySelector('.readout').textContent")
    assert said.startswith("create 1000 files, tmpfs: returned") and "times disk, faster to return" in said
    assert page.value("document.activeElement.getAttribute('aria-label')") == said


def test_it_can_be_read_aloud(page: Page) -> None:
    assert page.value("document.documentElement.lang") == "en"
    assert page.value("document.querySelectorAll('main').length") == 1
    assert page.value(
        "[...document.querySelectorAll('table')].every(t => t.caption && t.caption.textContent.trim())"
    )
    assert page.value("[...document.querySelectorAll('th')].every(th => th.scope)")
    assert page.value(
        "[...document.querySelectorAll('figure svg')].every(svg => svg.getAttribute('aria-label'))"
    )
    assert page.value(
        "[...document.querySelectorAll('.scroll')].every(each => each.tabIndex === 0 && each.ariaLabel)"
    )
    assert page.value("[...document.querySelectorAll('input, select')].every(each => each.labels.length)")
    assert page.value(
        "[...document.querySelectorAll('section')]"
        ".every(each => document.getElementById(each.getAttribute('aria-labelledby')))"
    )
    ids = page.value("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(ids) == len(set(ids))
    # Headings go down one level at a time.
    levels = page.value("[...document.querySelectorAll('h1, h2, h3')].map(each => Number(each.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_it_asks_for_nothing(page: Page) -> None:
    assert (
        page.value(
            "performance.getEntriesByType('resource').filter(each => !each.name.startsWith('data:')).length"
        )
        == 0
    )
    assert not page.value('document.documentElement.outerHTML.match(/(src|href)="(https?:)?\\/\\//)')
