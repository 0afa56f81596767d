"""The HTML report in a real browser, wide and narrow, light and dark."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from parity.report.html import render_html
from parity.result import Result
from tests.report.browser import browser, drawn, missing, until
from tests.report.cases import CASES
from tests.report.drawn import drawn as drawn_result
from tests.report.drawn import long

pytestmark = pytest.mark.slow

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
SCREENS = [
    pytest.param(size, scheme, id=f"{name}-{scheme}")
    for name, size in (("wide", WIDE), ("phone", PHONE))
    for scheme in ("light", "dark")
]
Scheme = Literal["light", "dark"]
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Without a browser, CI fails and anyone else skips, with the reason."""
    reason = missing()
    if reason is not None and ("CI" in os.environ or "PARITY_TEST_BROWSER" in os.environ):
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports by name."""
    folder = tmp_path_factory.mktemp("reports")
    results: dict[str, Result] = {"passed": drawn_result(), "failed": drawn_result(1.01), "long": long()}
    results |= {name: make() for name, make in CASES.items()}
    for name, result in results.items():
        (folder / f"{name}.html").write_text(render_html(result), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in results}


@pytest.fixture
def opened(chromium: Browser, reports: dict[str, Path]) -> Iterator[Open]:
    """Opens a report; in the end, nothing was asked of the network and nothing was said on the console."""
    said: list[str] = []
    asked: list[str] = []
    contexts = []

    def open_(name: str, size: Any = WIDE, scheme: Scheme = "light", **more: Any) -> Page:
        context = chromium.new_context(viewport=size, color_scheme=scheme, has_touch=size is PHONE, **more)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        return drawn(page, reports[name])

    yield open_
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == len(contexts)


def whole(page: Page) -> Page:
    """Scroll through the page, so that every figure is drawn."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for plot in page.locator(".plot").all():
        plot.scroll_into_view_if_needed()
        plot.locator(".main-svg").first.wait_for()
    return page


def ranges(page: Page) -> list[list[int]]:
    """Steps that each figure with an axis of steps shows, rounded."""
    found: list[list[int]] = page.evaluate(
        "[...document.querySelectorAll('.plot')].filter((one) => one.data && one.data[0].type !== 'heatmap')"
        ".map((one) => one.layout.xaxis.range.map(Math.round))"
    )
    return found


@pytest.mark.parametrize(("size", "scheme"), SCREENS)
@pytest.mark.parametrize("name", ["passed", "failed", "long"])
def test_every_figure_is_drawn_and_the_page_never_scrolls_sideways(
    opened: Open, name: str, size: dict[str, int], scheme: Scheme
) -> None:
    page = whole(opened(name, size, scheme))
    assert page.locator(".plot").count() == page.locator(".plot:has(.main-svg)").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_verdict_is_drawn_on_a_phone(opened: Open, name: str) -> None:
    page = whole(opened(name, PHONE, "dark"))
    assert page.locator(".plot").count() == page.locator(".plot:has(.main-svg)").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


@pytest.mark.parametrize(("size", "scheme"), SCREENS)
def test_contrast_names_and_roles_are_as_wcag_asks(opened: Open, size: dict[str, int], scheme: Scheme) -> None:
    page = whole(opened("failed", size, scheme, bypass_csp=True))  # for the script of axe
    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_drawn_stands_out_from_the_page(opened: Open, scheme: Scheme) -> None:
    """WCAG 2.1, 1.4.11: lines and marks have a contrast of 3 to 1; text in figures (1.4.3) 4.5 to 1."""
    contrasts = opened("failed", WIDE, scheme).evaluate(
        """() => {
          const style = getComputedStyle(document.documentElement);
          const light = (name) => {
            const hex = style.getPropertyValue(name).trim();
            const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
              .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
          };
          const against = (name) => {
            const [high, low] = [light(name), light("--page")].sort((a, b) => b - a);
            return (high + 0.05) / (low + 0.05);
          };
          const names = ["gap", "allowed", "floor", "noise", "worst", "text", "muted"];
          return Object.fromEntries([...names, ...[...Array(8).keys()].map((n) => `leg-${n}`)]
            .map((name) => [name, against(`--${name}`)]));
        }"""
    )
    assert {name: value for name, value in contrasts.items() if value < 3} == {}
    assert min(contrasts[name] for name in ("worst", "text", "muted")) >= 4.5


def test_figures_take_the_colours_of_the_theme_when_it_changes(opened: Open) -> None:
    page = opened("failed")
    plot = page.locator(".plot").first

    def colour() -> str:
        return str(plot.locator(".xtick text").first.evaluate("(one) => getComputedStyle(one).fill"))

    assert colour() == "rgb(28, 33, 40)"
    page.emulate_media(color_scheme="dark")
    until(page, "() => getComputedStyle(document.querySelector('.xtick text')).fill === 'rgb(230, 233, 237)'")


def test_a_zoom_is_shared_by_all_figures_with_the_mouse_and_with_the_keyboard(opened: Open) -> None:
    page = whole(opened("failed"))
    page.get_by_label("steps from").fill("10")
    page.get_by_label("to", exact=True).fill("20")
    page.keyboard.press("Tab")
    until(page, "document.querySelector('.plot').layout.xaxis.range[0] === 10")
    assert ranges(page) == [[10, 20]] * 4
    page.get_by_role("button", name="all steps").press("Enter")
    until(page, "document.querySelector('.plot').layout.xaxis.range[0] < 1")
    assert all(first <= 0 and last >= 39 for first, last in ranges(page))
    plot = page.locator(".plot").first
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=5)
    page.mouse.up()
    until(page, "document.querySelector('.plot').layout.xaxis.range[0] > 15")
    assert len({tuple(one) for one in ranges(page)}) == 1


def test_arrow_keys_tell_step_by_step_what_the_mouse_would(opened: Open) -> None:
    page = opened("failed")
    plot = page.locator(".plot").first
    plot.focus()
    page.keyboard.press("Home")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    said = page.locator("output").first
    assert str(said.text_content()).startswith("step 5: ")
    assert "gap 0.01, " in str(said.text_content())
    page.keyboard.press("End")
    assert str(said.text_content()).startswith("step 39: ")


def test_arrow_keys_go_from_cell_to_cell_of_a_map(opened: Open) -> None:
    page = whole(opened("failed"))
    page.get_by_role("application", name="Gradients").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    told = page.locator("figure:has(.plot:focus) output")
    assert told.text_content() == "layers.0.norm.weight, norms, step 1, distance 0.25, 12,300 × floor"


def test_legs_are_toggled_by_the_keyboard(opened: Open) -> None:
    page = whole(opened("failed"))
    shown = page.get_by_role("checkbox", name="tp4")
    hidden = (
        "() => [...document.querySelectorAll('.plot')].flatMap((one) => one.data)"
        ".filter((one) => one.meta?.leg === 'tp4').map((one) => one.visible)"
    )
    shown.focus()
    page.keyboard.press("Space")
    assert set(page.evaluate(hidden)) == {False}
    page.keyboard.press("Space")
    assert set(page.evaluate(hidden)) == {True}


def test_everything_that_can_be_used_is_reached_with_the_tab_key_and_shows_it(opened: Open) -> None:
    page = whole(opened("failed"))
    page.evaluate("scrollTo(0, 0)")
    wanted = page.evaluate("document.querySelectorAll('a, button, input, summary, [tabindex=\"0\"]').length")
    found = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        found.add(
            page.evaluate(
                """() => {
                  const at = document.activeElement;
                  if (at === document.body) return null;
                  const all = [...document.querySelectorAll('a, button, input, summary, [tabindex="0"]')];
                  const outline = getComputedStyle(at).outlineStyle !== "none";
                  return outline ? all.indexOf(at) : `no outline: ${at.outerHTML.slice(0, 80)}`;
                }"""
            )
        )
    assert found - {None} == set(range(wanted))


def test_the_policy_lets_no_script_run_that_is_not_ours(opened: Open, reports: dict[str, Path]) -> None:
    text = reports["failed"].read_text()
    odd = reports["failed"].with_name("odd.html")
    odd.write_text(text.replace("<main", "<script>document.title = 'run'</script><main", 1))
    reports["odd"] = odd
    other = opened("failed").context.new_page()
    other.goto(odd.as_uri())
    assert other.title() == "fail: drawn · parity"
