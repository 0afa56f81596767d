"""The command line. Thin: every command reads its arguments, calls one function and prints."""

import click

from parity import __version__
from parity.commands.calibrate import calibrate
from parity.commands.compare import compare
from parity.commands.init import init
from parity.commands.inspect import inspect
from parity.commands.plan import plan
from parity.commands.report import report
from parity.commands.run import run
from parity.commands.selftest import selftest
from parity.commands.show import show
from parity.commands.validate import validate
from parity.exits import Group

__all__ = ["main"]


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="parity")
def main() -> None:
    """Does a model trained under a parallel layout still compute the same thing as the plain run?

    Exit codes: 0 pass, 1 fail, 2 wrong usage, 3 inconclusive, 4 error.
    """


for command in (run, plan, compare, inspect, validate, init, report, show, calibrate, selftest):
    main.add_command(command)
