"""A template that somebody brings for the comment: sandboxed, and held to a size; time and memory are a caller's."""

from dataclasses import asdict
from typing import Final

from jinja2 import TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from parity.plain import plain
from parity.report import text
from parity.report.first_screen import first_screen
from parity.report.markdown import environment
from parity.report.sections import chapters
from parity.result import Result

__all__ = ["LONGEST", "TemplateError", "render_own_template"]

LONGEST: Final = 1 << 20
"""Characters of what a template makes; a comment has room for some 60,000."""


class TemplateError(Exception):
    """The template is broken: one line that says where."""


def render_own_template(template: str, result: Result, report: str) -> str:
    """The text that the template makes of a result.

    It is given `result` as in `result.json`, `screen`, the fields of `FirstScreen`, and `first_screen` and `folds`,
    the two parts of the Markdown report. Every expression is escaped, unless a filter of the report made it.

    Args:
        template: Jinja2.
        result: that it shows.
        report: the Markdown report of that result.

    Raises:
        TemplateError: it is broken, or makes too long a text.
    """
    screen, *folds = chapters(report)
    sandbox = environment(ImmutableSandboxedEnvironment)
    for name in ("layout", "place"):  # these take legs, and a template is given plain data
        del sandbox.filters[name]
    made: list[str] = []
    try:
        stream = sandbox.from_string(template).generate(
            result=result.model_dump(),
            screen=asdict(first_screen(result)),
            first_screen=text.Safe(screen),
            folds=text.Safe("".join(map(str, folds))),
        )
        for some in stream:
            made.append(some)
            if sum(map(len, made)) > LONGEST:
                raise TemplateError(f"it makes more than {LONGEST} characters")
    except TemplateSyntaxError as error:
        raise TemplateError(f"line {error.lineno}: {plain(error.message)}") from None
    except TemplateError:
        raise
    except Exception as error:  # whatever a template does with what it is given
        line = _line(error)
        raise TemplateError(f"{f'line {line}: ' if line else ''}{type(error).__name__}: {plain(error)}") from None
    if not (whole := "".join(made)).strip():
        raise TemplateError("it makes an empty text")
    return whole.rstrip("\n") + "\n"


def _line(error: BaseException) -> int | None:
    """The template's line that raised it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
