"""Options that several commands take."""

import click

__all__ = ["key_option", "pattern_option"]


def _key(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, list[str]]:
    pairs = [value.partition("=") for value in values]
    wrong = [name for name, equals, key in pairs if not (name and equals and key)]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not metric=key, such as grad_norm=train/grad_norm")
    keys: dict[str, list[str]] = {}
    for name, _, key in pairs:
        keys.setdefault(name, []).append(key)
    return keys


key_option = click.option(
    "--key",
    multiple=True,
    callback=_key,
    metavar="METRIC=KEY",
    help="Key that holds a metric; repeatable, of several for a metric the first that a log has.",
)

pattern_option = click.option(
    "--pattern", help="For logs in no known format: a regular expression whose groups name step and metrics."
)
