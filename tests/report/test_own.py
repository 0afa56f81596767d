"""A template that somebody brings: what it is given, and how it fails."""

import pytest

from parity.report.markdown import render_markdown
from parity.report.own import LONGEST, TemplateError, render_own_template
from tests.report.cases import CASES
from tests.report.filling import replaced
from tests.report.test_markdown import FULL, GITHUB

REPORT = render_markdown(FULL)


def render(template: str) -> str:
    return render_own_template(template, FULL, REPORT)


def test_the_two_parts_of_the_usual_report_are_the_whole_of_it() -> None:
    assert render("{{ first_screen }}{{ folds }}") == REPORT


def test_it_is_given_the_first_screen_s_fields_and_the_result() -> None:
    failed = CASES["compounds"]()
    template = "{% for row in screen.rows %}{{ row.metric }} {{ row.gap }} at {{ row.worst_step }}{% endfor %};"
    template += " {{ result.comparisons[0].metrics[0].first_divergent_step }} of {{ result.steps }}"
    assert render_own_template(template, failed, render_markdown(failed)) == "loss 0.0239 at 19; 6 of 20\n"


def test_numbers_are_spelled_as_in_the_usual_report() -> None:
    assert render("{{ 0.000123456 | gap }} {{ 1234.5 | times }} {{ 125 | seconds }}") == "0.000123 1,230 2 min 5 s\n"


def test_what_a_leg_says_is_escaped() -> None:
    hostile = replaced(FULL, {str: "</details> @maintainer <b>x</b>"})
    text = render_own_template("{{ result.summary }} {{ result.summary | safe }}", hostile, REPORT)
    assert "<b>" not in GITHUB.render(text)
    assert "@m" not in text


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("\n{% for %}", r"line 2: .*"),
        ("{{ nothing }}", r"line 1: UndefinedError: 'nothing' is undefined"),
        ("a\nb {{ result.nothing.more }}", r"line 2: UndefinedError: .*"),
        ("{{ 1 / 0 }}", r"line 1: ZeroDivisionError: .*"),
        ("{{ result.__class__.__mro__ }}", r"line 1: SecurityError: .*"),
        ("{{ ''.__class__.__base__.__subclasses__() }}", r"line 1: SecurityError: .*"),
        ("{{ result.notes.append(1) }}", r"line 1: SecurityError: .*"),
        ("{% for n in range(10 ** 9) %}x{% endfor %}", r"line 1: OverflowError: .*"),
        ("{% include '../../../etc/passwd' %}", r"line 1: TemplateNotFound: .*"),
        ("{% for n in range(1000) %}{{ 'x' * 2000 }}{% endfor %}", f"it makes more than {LONGEST} characters"),
        ("{% if false %}x{% endif %} \n", "it makes an empty text"),
    ],
)
def test_a_broken_one_is_told_in_a_line(template: str, said: str) -> None:
    with pytest.raises(TemplateError, match=f"^{said}$"):
        render(template)
