"""The HTML report: what is in it, and what hostile runs can do to it (nothing)."""

import base64
import functools
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.plain import plain
from parity.report import figures, text
from parity.report.first_screen import first_screen
from parity.report.gradient_map import gradient_map
from parity.report.html import render_html
from parity.report.markdown import render_markdown
from parity.result import ComparisonResult, LegResult, OutcomeResult, Result
from tests.report.drawn import GRADIENTS, drawn, holding, long
from tests.report.filling import replaced
from tests.report.test_text import HOSTILE

PLOTLY = Path(figures.__file__).parent / "plotly"
PASSED, FAILED = drawn(), drawn(1.01)


class Page(HTMLParser):
    """Tags, attributes and text of a page; scripts and styles apart."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.said: list[str] = []
        self.scripts: list[tuple[str, str]] = []
        self._raw: str | None = None
        self._parts: list[str] = []
        self._type = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag in ("script", "style"):
            self._raw, self._parts = tag, []
            self._type = dict(attrs).get("type") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self.scripts.append((self._type, "".join(self._parts)))
        if tag == self._raw:
            self._raw = None
        if tag in ("td", "th"):
            self.said.append(" ")

    def handle_data(self, data: str) -> None:
        if self._raw:
            self._parts.append(data)
        else:
            self.said.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.said))

    @property
    def figures(self) -> dict[str, Any]:
        (data,) = [content for kind, content in self.scripts if kind]
        found: dict[str, Any] = json.loads(data, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        return found


@functools.cache
def page(result: str) -> Page:
    return Page(render_html({"passed": PASSED, "failed": FAILED}[result]))


def strings(value: Any) -> list[str]:
    """Every text in a figure that may be shown."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key, one in value.items() if key != "meta" for text in strings(one)]
    return [text for one in value for text in strings(one)] if isinstance(value, list) else []


def figure(name: str, result: Result = FAILED) -> dict[str, Any]:
    """The gap of a metric in the first comparison."""
    (one,) = result.comparisons
    (metric,) = [metric for metric in one.metrics if metric.metric == name]
    found = figures.gap(one, metric)
    assert found is not None
    return found.spec


def test_only_our_two_scripts_may_run_and_nothing_may_be_loaded() -> None:
    policy = next(value for tag, name, value in page("failed").attributes if tag == "meta" and "default-src" in value)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    run = [content for kind, content in page("failed").scripts if not kind]
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in run]
    assert rules.pop("script-src").split() == hashes
    assert len(hashes) == 2
    assert rules == {
        "default-src": "'none'", "style-src": "'unsafe-inline'", "img-src": "data:", "base-uri": "'none'",
        "form-action": "'none'",
    }  # fmt: skip


def test_nothing_in_the_page_points_out_of_it() -> None:
    for tag, name, value in page("failed").attributes:
        assert name not in ("src", "srcset", "action", "style"), (tag, name)
        assert not name.startswith("on"), (tag, name)
        if name == "href":
            assert value.startswith("#"), value
    ids = {value for _, name, value in page("failed").attributes if name == "id"}
    for _, name, value in page("failed").attributes:
        if name == "href":
            assert value[1:] in ids
        if name in ("aria-labelledby", "aria-describedby", "for"):
            assert set(value.split()) <= ids


def test_the_bundle_is_the_one_that_its_page_names() -> None:
    said = (PLOTLY / "README.md").read_text()
    (version,) = set(re.findall(r"\d+\.\d+\.\d+", said))
    assert f"plotly.js (cartesian - minified) v{version}" in (PLOTLY / "plotly-cartesian.min.js").read_text()[:100]


TEXTS = st.one_of(
    st.sampled_from([*HOSTILE, "</script><script>alert(1)</script>", "<!--<script>", "]]>", "%{x}", "var(--page)"]),
    st.text(max_size=120),
).filter(plain)


@functools.cache
def structure(text: str) -> tuple[list[str], list[tuple[str, str]], int]:
    """Tags, attributes and scripts of a report with `text` in every field."""
    found = Page(render_html(replaced(FAILED, {str: text})))
    return found.tags, [(tag, name) for tag, name, _ in found.attributes], len(found.scripts)


@settings(max_examples=40)
@given(text=TEXTS)
def test_hostile_text_in_every_field_of_a_result_changes_nothing_around_it(text: str) -> None:
    assert structure(text) == structure("calm")


def test_every_text_of_a_result_is_put_into_the_test_above() -> None:
    assert Page(render_html(replaced(FAILED, {str: "calm"}))).text.count("calm") > 60


def test_no_name_reaches_the_figures_as_a_tag_or_a_reference() -> None:
    odd = Page(render_html(replaced(FAILED, {str: "<a href='http://evil.example'>&lt;b&gt;</a>"}))).figures
    for said in strings(odd):
        assert not re.search(r"<(?!br>|/?extra>)|&lt;b", said), said


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, -1.5, 0.0, 5e-324, 1.7e308])
def test_a_report_of_any_numbers(number: float) -> None:
    odd = Page(render_html(replaced(FAILED, {float: number})))
    assert len(odd.figures) == 5
    assert odd.tags == page("failed").tags


def test_the_first_screen_says_the_verdict_its_reason_and_how_to_repeat_it() -> None:
    first = page("failed").text.split("comparisons")[0]
    assert "parity · drawn" in first
    assert "✗ fail" in first
    assert plain(FAILED.summary) in first
    assert "parity run drawn.yml" in first


def test_the_worst_step_is_marked_and_told_as_the_tables_tell_it() -> None:
    (one,) = FAILED.comparisons
    metric = next(metric for metric in one.metrics if metric.metric == "loss")
    row = next(row for row in metric.window if row.step == metric.worst_step)
    spec = figure("loss")
    (mark,) = [each for each in spec["layout"]["annotations"] if each["text"].startswith("worst")]
    assert (mark["x"], mark["text"]) == (row.step, f"worst, step {row.step}")
    (line,) = [trace for trace in spec["data"] if trace.get("name", "").startswith("gap of")]
    told = line["customdata"][line["x"].index(row.step)]
    assert told == f"gap {text.gap(row.relative)}, {text.times(row.times_allowed)} × allowed"
    (ring,) = [trace for trace in spec["data"] if trace.get("marker", {}).get("symbol") == "circle-open"]
    assert (ring["x"], ring["y"]) == ([row.step], [pytest.approx(row.relative)])
    assert f"worst at step {row.step}: {text.gap(row.relative)}" in page("failed").text


def test_the_first_step_beyond_what_is_allowed_is_marked_where_it_is_not_the_worst() -> None:
    spec = figure("loss")
    marks = [each["text"] for each in spec["layout"]["annotations"]]
    assert "first beyond, step 5" in marks
    assert not figure("loss", PASSED)["layout"]["shapes"]


def test_the_allowed_band_and_the_floor_are_drawn_on_a_logarithmic_axis() -> None:
    spec = figure("loss")
    assert spec["layout"]["yaxis"]["type"] == "log"
    named = {trace["name"]: trace for trace in spec["data"] if "name" in trace}
    assert {"allowed", "floor", "noise", "gap of tp2"} <= set(named)
    assert named["allowed"]["fill"] == "tonexty"
    deviation = FAILED.comparisons[0].metrics[0].deviation
    assert deviation is not None
    assert named["allowed"]["y"] == pytest.approx(deviation.allowed)


def test_an_exact_zero_has_a_place_and_what_is_not_finite_a_cross() -> None:
    (one,) = PASSED.comparisons
    deviation = one.metrics[0].deviation
    assert deviation is not None
    odd = deviation.model_copy(update={"gap": [0.0, np.nan, np.inf, *deviation.gap[3:]]})
    spec = figure("loss", Result.model_validate(with_deviation(PASSED, odd)))
    (line,) = [trace for trace in spec["data"] if trace.get("name", "").startswith("gap of")]
    axis = spec["layout"]["yaxis"]
    assert axis["ticktext"][0] == "0"
    assert axis["tickvals"][0] == line["y"][0] < min(y for y in line["y"][3:])
    assert line["y"][1:3] == [None, None]
    (crosses,) = [trace for trace in spec["data"] if trace.get("name") == "not finite"]
    assert crosses["x"] == [1, 2]
    assert crosses["customdata"] == ["gap NaN", "gap ∞"]


def with_deviation(result: Result, deviation: Any) -> Result:
    (one,) = result.comparisons
    metrics = [one.metrics[0].model_copy(update={"deviation": deviation}), *one.metrics[1:]]
    return result.model_copy(update={"comparisons": [one.model_copy(update={"metrics": metrics})]})


def test_the_curves_of_every_leg_tell_values_as_logged() -> None:
    by_metric = {one.title: one.spec for one in figures.curves(FAILED)}
    assert list(by_metric) == ["loss", "grad_norm"]
    legs = [trace["meta"]["leg"] for trace in by_metric["loss"]["data"]]
    assert legs == ["tp1", "tp2", "tp4"]
    first = by_metric["loss"]["data"][0]
    assert first["customdata"][3] == f"tp1 {text.value(FAILED.curves[0].values[3])}"


def test_the_map_of_gradients_has_a_row_for_each_parameter_layer_by_layer() -> None:
    found = gradient_map(FAILED.comparisons[0])
    assert found is not None
    (trace,) = found.spec["data"]
    assert trace["customdata"][1][1] == "layers.0.norm.weight<br>norms, step 1<br>distance 0.25<br>12,300 × floor"
    assert trace["z"][1][1] == pytest.approx(math.log10(0.25))
    assert trace["z"][3][0] is None
    assert found.spec["layout"]["yaxis"]["ticktext"] == [
        "embeddings",
        "0 · norms",
        "0 · mlp",
        "1 · mlp",
        "embeddings",
    ]
    borders = [shape["y0"] for shape in found.spec["layout"]["shapes"]]
    assert borders == [0.5, 2.5, 3.5]
    ticks = trace["colorbar"]["ticktext"]
    assert (ticks[0], ticks[-1]) == ("0", "0.25")
    assert len(GRADIENTS.names) == len(trace["z"])


def test_a_check_that_did_not_run_looks_like_none_that_did() -> None:
    tags = page("passed").attributes
    chips = {value for tag, name, value in tags if tag == "span" and name == "class" and value.startswith("chip")}
    assert {"chip pass", "chip not-run"} <= chips
    assert "– not run" in page("passed").text


def test_what_ranks_hold_is_told_and_a_cut_through_a_head_stands_out() -> None:
    said = page("failed").text
    assert "rows 0–29: cut through a head of 16 rows" in said
    assert "heads 0–1" in said
    assert "1,234,567" in said
    strips = [value for tag, name, value in page("failed").attributes if tag == "svg" and name == "class"]
    assert sum("wrong" in one for one in strips) == 2


def test_one_rank_has_a_sentence_and_no_drawing() -> None:
    whole = holding("tp1", 32)
    alone = whole.model_copy(update={"holds": whole.holds[:1], "sharded": [], "layout": {}})
    found = Page(render_html(PASSED.model_copy(update={"legs": [alone]})))
    assert "One rank holds all 1,234,567 elements of 2 layers." in found.text


def test_a_failed_leg_shows_the_end_of_its_log_as_it_was_indented() -> None:
    assert "pp2 failed" in page("failed").text
    assert "Rank 1 failed first." in page("failed").text
    assert "    raise ValueError('<b>bad</b>')" in "".join(page("failed").said)


def test_a_result_without_what_is_drawn_has_every_table() -> None:
    (one,) = FAILED.comparisons
    metrics = [metric.model_copy(update={"deviation": None}) for metric in one.metrics]
    bare = one.model_copy(update={"metrics": metrics, "gradients": None})
    legs = [LegResult(name=leg.name, status=leg.status) for leg in FAILED.legs]
    old = Page(render_html(FAILED.model_copy(update={"comparisons": [bare], "curves": [], "legs": legs})))
    assert old.figures == {}
    assert "forward" in old.text


def test_a_result_of_nothing_is_a_page() -> None:
    empty = Result(suite="x", verdict="error", summary="nothing ran", reproduce="parity run x")
    assert "nothing ran" in Page(render_html(empty)).text


def test_of_many_comparisons_those_that_pass_are_folded() -> None:
    (passed,), (failed,) = PASSED.comparisons, FAILED.comparisons
    many = FAILED.model_copy(update={"comparisons": [*[passed] * 29, failed]})
    found = Page(render_html(many))
    folds = [name for tag, name, _ in found.attributes if tag == "details"]
    assert folds.count("open") == 1
    assert folds[:2] == ["class", "open"]  # the one that fails comes first
    assert passed.verdict == "pass"


def test_long_runs_are_drawn_in_part_and_never_without_the_worst_step() -> None:
    many = long(legs=3, steps=5000)
    (one,) = many.comparisons
    metric = one.metrics[0]
    found = figures.gap(one, metric)
    assert found is not None
    (line,) = [trace for trace in found.spec["data"] if trace.get("name", "").startswith("gap of")]
    assert len(line["x"]) <= 1001
    assert metric.worst_step == 5000 // 3
    assert metric.worst_step in line["x"]
    assert "steps are drawn, the largest gaps among them" in found.description


def test_the_first_screen_spells_its_numbers_as_markdown_does() -> None:
    (row,) = first_screen(FAILED).rows
    markdown, html = render_markdown(FAILED), page("failed").text
    for number in (row.gap, row.allowed, row.times_allowed, row.times_floor, row.worst_step):
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", markdown), number
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", html.split("Comparisons")[0]), number


def test_an_outcome_says_whether_it_was_required() -> None:
    one: ComparisonResult = PASSED.comparisons[0]
    needed = OutcomeResult(check="reference", kind="parity", status="not run", required=True, reason="none")
    more = one.model_copy(update={"outcomes": [needed]})
    found = Page(render_html(PASSED.model_copy(update={"comparisons": [more]}))).text
    assert re.search("not run ?required", found)


def test_a_leg_that_recorded_nothing_makes_no_setting_of_the_others_differ_and_memory_has_a_unit() -> None:
    known = {"torch": "2.13.0", "threads": 1, "backend": None}
    legs = [
        LegResult(name="a", status="finished", environment=known, peak_memory=3 << 30),
        LegResult(name="b", status="finished", environment={**known, "threads": 4}),
        LegResult(name="dead", status="failed"),
    ]
    html = render_html(Result(suite="x", verdict="error", summary="x", reproduce="x", legs=legs))
    rows = re.findall(r"<tr( class=\"differs\")?><th scope=\"row\">(\w+)</th>((?:<td>[^<]*</td>)+)</tr>", html)
    assert [(bool(differs), key, re.findall(r">([^<]+)<", cells)) for differs, key, cells in rows] == [
        (True, "threads", ["1", "4", "–"]),
        (False, "torch", ["2.13.0", "2.13.0", "–"]),
        (False, "backend", ["–", "–", "–"]),
    ]
    assert '<td class="n">3 GiB</td>' in html
