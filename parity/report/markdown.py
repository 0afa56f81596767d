"""The Markdown report."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from parity.report import text
from parity.result import LegResult, Result

__all__ = ["environment", "render_markdown"]

_MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "error": "💥", "not run": "➖"}


def environment() -> Environment:
    """The templates, in which every expression is escaped."""
    # Autoescape is for HTML. Here every expression is escaped for Markdown as it is put into the text, whoever wrote
    # it, unless a filter below made it.
    environment = Environment(  # noqa: S701
        loader=PackageLoader("parity.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finished,
    )
    environment.filters.update(
        code_block=text.code_block,
        gap=text.gap,
        percent=text.percent,
        ratio=text.ratio,
        seconds=text.seconds,
        sparkline=text.sparkline,
        template=text.Safe,  # what a macro made: its own expressions were escaped
        times=text.times,
        value=text.value,
    )
    environment.globals["mark"] = _MARKS
    return environment


def _finished(value: object) -> str:
    return value if isinstance(value, text.Safe) else text.escape(value)


def render_markdown(result: Result) -> str:
    """The whole report; ends with a line break."""
    worst = [one for one in result.comparisons if one.metrics or any(o.parameters or o.shares for o in one.outcomes)]
    return (
        environment()
        .get_template("report.md.j2")
        .render(result=result, worst=worst, environment=_side_by_side(result.legs))
    )


def _side_by_side(legs: list[LegResult]) -> list[tuple[str, list[object]]]:
    """What the legs recorded of their environment, a row a key; what is not one value is left out."""
    keys = dict.fromkeys(key for leg in legs for key, value in leg.environment.items() if not isinstance(value, dict))
    return [(key, [leg.environment.get(key, "–") for leg in legs]) for key in keys]
