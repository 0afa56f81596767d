"""The chart: few points, finite numbers, and what the real parser takes."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.compare import compare as compared
from parity.report.chart import POINTS, draw
from parity.report.markdown import render_markdown
from parity.result import ComparisonResult
from tests.drawing import LOSS, NORM, compare, leg
from tests.report import browser
from tests.report.cases import CASES
from tests.report.filling import replaced
from tests.report.test_markdown import result

ROOT = Path(__file__).resolve().parents[2]


def comparison(loss: np.ndarray, baseline: np.ndarray = LOSS) -> ComparisonResult:
    return compared(compare(leg("a", loss=baseline), leg("b", loss=loss), steps=baseline.size))


def values(source: str) -> list[list[float]]:
    return [[float(one) for one in line.split(", ")] for line in re.findall(r"line \[(.*)\]", source)]


def test_a_line_is_the_gap_in_units_of_what_is_allowed_beside_a_line_at_one() -> None:
    loss = LOSS.copy()
    loss[13] *= 1 + 4e-5
    drawing = draw(comparison(loss))
    assert drawing is not None
    gap, allowed = values(drawing.lines)
    assert [at for at, one in enumerate(gap) if one] == [13]
    assert gap[13] == pytest.approx(2, rel=0.01)
    assert allowed == [1] * 20
    assert [name for _, name in drawing.legend] == ["loss", "what is allowed"]
    assert not drawing.cut


@pytest.mark.parametrize("worst", [1, 2501, 4998])
def test_of_many_steps_the_worst_is_a_point(worst: int) -> None:
    baseline = 6 - np.arange(5000) / 2000
    loss = baseline.copy()
    loss[worst] *= 1.5
    drawing = draw(comparison(loss, baseline))
    assert drawing is not None
    gap, _ = values(drawing.lines)
    assert len(gap) == POINTS
    assert gap.index(max(gap)) == worst * POINTS // 5000
    assert max(gap) > 10


def test_what_is_not_finite_stands_at_the_top_and_is_told() -> None:
    loss = LOSS.copy()
    loss[7] = np.nan
    drawing = draw(comparison(loss))
    assert drawing is not None
    assert values(drawing.lines)[0][7] == 1
    assert drawing.cut


def test_of_one_step_nothing_is_drawn() -> None:
    assert draw(comparison(LOSS[:1], LOSS[:1])) is None


NUMBERS = st.floats() | st.sampled_from([0.0, 1e300, -1.0, 5e-324, float("inf"), float("nan")])


@given(st.lists(NUMBERS, min_size=20, max_size=20))
def test_every_number_is_finite_and_written_without_an_exponent(times: list[float]) -> None:
    one = comparison(LOSS)
    (metric,) = one.metrics
    assert metric.deviation is not None
    deviation = metric.deviation.model_copy(update={"times_allowed": times})
    drawing = draw(one.model_copy(update={"metrics": [metric.model_copy(update={"deviation": deviation})]}))
    assert drawing is not None
    numbers = re.findall(r"[^\s,\[\]]+", "".join(re.findall(r"line (\[.*\])", drawing.lines)))
    assert len(numbers) == 40
    assert all(re.fullmatch(r"\d+(\.\d+)?", one) for one in numbers)
    assert re.search(r'y-axis "times what is allowed" 0 --> \d+(\.\d+)?$', drawing.lines, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(browser.missing() is not None, reason=str(browser.missing()))
def test_mermaid_itself_takes_every_chart_and_draws_its_lines() -> None:
    version = re.search(r"^MERMAID := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert version
    bundle = ROOT / ".venv" / f"mermaid-{version[1]}.js"
    if not bundle.exists():
        pytest.skip(f"no {bundle.name}: make {bundle.relative_to(ROOT)}")
    reports = [render_markdown(make()) for make in CASES.values()]
    full = result(LOSS * 1.01)
    reports += [render_markdown(replaced(full, {float: number})) for number in (float("nan"), 1e300, -1.0, 5e-324)]
    reports += [render_markdown(result(candidate)) for candidate in (LOSS, LOSS[:5], np.full(20, np.nan), NORM)]
    charts = [chart for report in reports for chart in re.findall(r"```mermaid\n(.*?)```", report, re.DOTALL)]
    assert len(charts) >= 13
    with browser.browser() as chromium:
        page = chromium.new_page()
        page.set_content("<!doctype html><main></main>")
        page.add_script_tag(path=bundle)
        page.evaluate("mermaid.initialize({startOnLoad: false})")
        for number, chart in enumerate(charts):
            assert page.evaluate("(text) => mermaid.parse(text).then((one) => one.diagramType)", chart) == "xychart"
            draws = "([id, text]) => mermaid.render(id, text).then((one) => one.svg)"
            svg = page.evaluate(draws, [f"chart{number}", chart])
            assert len(re.findall(r'<path[^>]*stroke="#', svg)) >= chart.count("line [")
            assert "NaN" not in svg
