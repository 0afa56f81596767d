"""The Markdown report."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from parity.report import text
from parity.result import LegResult, Result

__all__ = ["render_markdown"]

_MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "error": "💥", "not run": "➖"}


def _templates() -> Environment:
    # Autoescape is for HTML; untrusted text goes through `escape`, which is for Markdown.
    environment = Environment(  # noqa: S701
        loader=PackageLoader("parity.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        escape_markdown=text.escape,
        code_block=text.code_block,
        gap=text.gap,
        times=text.times,
        value=text.value,
        seconds=text.seconds,
        sparkline=text.sparkline,
    )
    environment.globals["mark"] = _MARKS
    return environment


def render_markdown(result: Result) -> str:
    """The whole report; ends with a line break."""
    return _templates().get_template("report.md.j2").render(result=result, environment=_side_by_side(result.legs))


def _side_by_side(legs: list[LegResult]) -> list[tuple[str, list[object]]]:
    """What the legs recorded of their environment, a row a key; what is not one value is left out."""
    keys = dict.fromkeys(key for leg in legs for key, value in leg.environment.items() if not isinstance(value, dict))
    return [(key, [leg.environment.get(key, "–") for leg in legs]) for key in keys]
