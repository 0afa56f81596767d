"""The HTML report: one file that needs nothing else, and no network."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from parity.plain import plain
from parity.report import figures, text
from parity.report.figures import Figure
from parity.report.first_screen import first_screen, line, worst_first
from parity.report.gradient_map import gradient_map
from parity.report.holdings import holdings
from parity.report.legs import environment, layout, state
from parity.result import ComparisonResult, LegResult, Result

__all__ = ["page", "render_html"]

_MARKS = {"pass": "✓", "fail": "✗", "inconclusive": "?", "error": "!", "not run": "–"}
# A suite of more is read in `result.json`.
_MOST_COMPARISONS = 200
_MOST_ROWS = 200  # of the environment
_LONGEST = 2000


@dataclass(frozen=True)
class _Comparison:
    """One comparison with its figures, by the ids that they have in the page, and where it is furthest out."""

    result: ComparisonResult
    gaps: list[tuple[str, Figure]]
    gradients: tuple[str, Figure] | None
    worst: str
    folded: bool


def render_html(result: Result) -> str:
    """The whole page.

    Its scripts are named by their hashes in a policy that lets no other run and nothing be loaded. What is drawn is
    JSON in it; without scripts, everything but the figures can be read.
    """
    drawn: dict[str, Figure] = {}

    def place(figure: Figure) -> tuple[str, Figure]:
        name = f"figure-{len(drawn)}"
        drawn[name] = figure
        return name, figure

    shown = worst_first(result.comparisons)[:_MOST_COMPARISONS]
    comparisons = [_comparison(one, result, place) for one in shown]
    curves = [place(figure) for figure in figures.curves(result)]
    names = figures.leg_names(result)
    code = Markup(_file("templates/report.js"))  # noqa: S704  ours
    plotly = Markup(_file("plotly/plotly-cartesian.min.js"))  # noqa: S704
    return page().render(
        result=result,
        first=first_screen(result),
        comparisons=comparisons,
        left_out=len(result.comparisons) - len(comparisons),
        curves=curves,
        legs=[(name, *figures.look(number)) for number, name in enumerate(names)],
        unwell=[leg for leg in result.legs if leg.status not in ("finished", "read") or leg.error],
        holdings=[found for leg in result.legs if (found := holdings(leg)) is not None],
        environment=_side_by_side(result.legs),
        style=Markup(_file("templates/report.css")),  # noqa: S704
        scripts=[plotly, code],
        hashes=[_hash(plotly), _hash(code)],
        figures=_json({name: figure.spec for name, figure in drawn.items()}),
    )


def _comparison(one: ComparisonResult, result: Result, place: Any) -> _Comparison:
    gaps = [place(figure) for metric in one.metrics if (figure := figures.gap(one, metric)) is not None]
    gradients = gradient_map(one)
    return _Comparison(
        result=one,
        gaps=gaps,
        gradients=None if gradients is None else place(gradients),
        worst=_worst(one),
        # Of many, those that pass are opened by whoever wants to see them.
        folded=one.verdict == "pass" and len(result.comparisons) > 2,
    )


def _worst(one: ComparisonResult) -> str:
    row = line(one)
    if row.worst_step == "–":
        return "" if row.metric == "–" else f"the verdict is that of {row.metric}"
    size = f"gap {row.gap}" if row.times_allowed == "–" else f"{row.times_allowed} × allowed"
    return f"{row.metric} worst at step {row.worst_step}, {size}"


@cache
def page() -> Template:
    """The page's template, compiled; every expression in it is escaped for HTML."""
    made = Environment(
        loader=PackageLoader("parity.report"),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_finished,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        gap=text.gap,
        layout=layout,
        log=_log,
        memory=text.memory,
        percent=text.percent,
        ratio=text.ratio,
        seconds=text.seconds,
        state=state,
        times=text.times,
    )
    made.globals["mark"] = _MARKS
    return made.get_template("report.html.j2")


def _finished(value: object) -> object:
    """Text without what hides or reorders it; it is escaped afterwards."""
    return value if isinstance(value, (Markup, text.Safe)) else plain(value, _LONGEST)


def _log(line: str) -> str:
    """A line of a log, indented as it was."""
    return text.Safe(" " * (len(line) - len(line.lstrip(" "))) + plain(line, _LONGEST))


@cache
def _file(name: str) -> str:
    return (files("parity.report") / name).read_text(encoding="utf-8")


@cache
def _hash(script: str) -> str:
    """As a content security policy names a script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _json(value: Any) -> Markup:
    """JSON that may stand in an element `script`: nothing in it ends the element or begins a comment."""
    written = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return Markup(written)  # noqa: S704


def _side_by_side(legs: Sequence[LegResult]) -> list[tuple[str, list[str], bool]]:
    """What the legs recorded of their environment, a row a key, and whether it differs; what differs comes first."""
    rows = []
    for fact in environment(legs)[:_MOST_ROWS]:
        known = {name: value for value, names in fact.values for name in names}
        rows.append((fact.name, [known.get(leg.name, "–") for leg in legs], fact.differs))
    return rows
