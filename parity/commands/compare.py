"""`parity compare`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from parity.commands.options import key_option, pattern_option
from parity.errors import UsageError
from parity.exits import FiniteRange

__all__ = ["compare"]

_PROFILES = ("fp32-cpu", "fp32-gpu", "bf16")


def _log_option(name: str, help_: str) -> Callable[[Any], Any]:
    return click.option(name, multiple=True, type=click.Path(path_type=Path), metavar="PATH", help=help_)


def _one(_context: click.Context, parameter: click.Parameter, values: tuple[Path, ...]) -> Path | None:
    if len(values) > 1:
        raise click.BadParameter(f"given {len(values)} times; a comparison has one {parameter.name}")
    return values[0] if values else None


def _one_log_option(name: str, help_: str) -> Callable[[Any], Any]:
    """An option that is refused where it is given twice, for click would take the last and say nothing."""
    return click.option(
        name, multiple=True, callback=_one, type=click.Path(path_type=Path), metavar="PATH", help=help_
    )


@click.command()
@click.argument("run_dirs", nargs=-1, type=click.Path(path_type=Path), metavar="[RUN_DIR]...")
@_one_log_option("--baseline", "Log of the plain run.")
@_one_log_option("--candidate", "Log of the run in question.")
@_log_option("--control", "Log of a layout trusted to be right; repeatable.")
@_log_option("--repeat", "Log of the plain run again; repeatable.")
@_log_option("--perturbed", "Log of the plain run with every weight moved by one ulp; repeatable.")
@_one_log_option("--reference", "Log of the plain run in float64.")
@click.option("--profile", type=click.Choice(_PROFILES), help="What is allowed; by default what the logs say.")
@click.option("--steps", type=click.IntRange(1), help="Steps that each log must have.")
@click.option("--format", "log_format", help="Format of the logs; by default told from their content.")
@key_option
@pattern_option
@click.option("--first-step", type=int, help="Number that the baseline's log gives to the first step.")
@click.option("--candidate-first-step", type=int, help="The same for the candidate's log; --first-step if not given.")
@click.option("--control-first-step", type=int, help="The same for controls' logs; --first-step if not given.")
@click.option("--loss-rtol", type=FiniteRange(0), help="Relative bound of the loss after the first step.")
@click.option("--loss-first-rtol", type=FiniteRange(0), help="Relative bound of the first loss.")
@click.option("--grad-norm-rtol", type=FiniteRange(0), help="Relative bound of the gradient norm.")
@click.option("--grad-norm-first-rtol", type=FiniteRange(0), help="Relative bound of the first gradient norm.")
@click.option("--k", type=FiniteRange(1), default=8.0, show_default=True, help="Times the noise floor allowed.")
@click.option("--require", multiple=True, metavar="CHECK", help="Check without which there is no pass; repeatable.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for result.json and the reports.")
@click.pass_context
def compare(
    context: click.Context,
    run_dirs: tuple[Path, ...],
    baseline: Path | None,
    candidate: Path | None,
    control: tuple[Path, ...],
    repeat: tuple[Path, ...],
    perturbed: tuple[Path, ...],
    reference: Path | None,
    profile: str | None,
    steps: int | None,
    log_format: str | None,
    key: dict[str, list[str]],
    pattern: str | None,
    first_step: int | None,
    candidate_first_step: int | None,
    control_first_step: int | None,
    loss_rtol: float | None,
    loss_first_rtol: float | None,
    grad_norm_rtol: float | None,
    grad_norm_first_rtol: float | None,
    k: float,
    require: tuple[str, ...],
    out: Path | None,
) -> int:
    """Judge a run directory again, or logs that exist already.

    Of several run directories, each with some legs of one suite, one is made in --out (parity-out) and judged.
    """
    from parity.checks.run import CHECKS
    from parity.console import make_console
    from parity.deliver import deliver
    from parity.judge import judge
    from parity.judge_logs import LogSource, Role, judge_logs
    from parity.merging import merge
    from parity.rundir import RunDirectory
    from parity.suite import Bounds, BoundsByMetric

    if run_dirs:
        given = [
            parameter.opts[0]
            for parameter in context.command.params
            if parameter.name not in ("run_dirs", *(["out"] if len(run_dirs) > 1 else []))
            and context.get_parameter_source(parameter.name or "") is not click.core.ParameterSource.DEFAULT
        ]
        if given:
            raise UsageError(
                f"{', '.join(given)}: only for logs; a run directory is judged by the suite that was run"
            )
        if file := next((path for path in run_dirs if path.is_file()), None):
            raise UsageError(f"{file}: a run directory is a folder; give logs with --baseline and --candidate")
        console = make_console()
        directory = RunDirectory(run_dirs[0])
        if len(run_dirs) > 1:
            directory, moved = merge(run_dirs, out or Path("parity-out"))
            if moved:
                console.print(f"the earlier run is now in {moved}", markup=False, soft_wrap=True)
        return deliver(judge(directory), directory, console)
    if baseline is None or candidate is None:
        raise UsageError("give a run directory, or logs with --baseline and --candidate")
    unknown = [name for name in require if name not in CHECKS]
    if unknown:
        raise UsageError(f"--require {unknown[0]}: no such check; there is {', '.join(CHECKS)}")
    noise: dict[Role, tuple[Path, ...]] = {"control": control, "repeat": repeat, "perturbed": perturbed}
    paths: list[tuple[Role, Path]] = [("baseline", baseline), ("candidate", candidate)]
    paths += [(role, path) for role, several in noise.items() for path in several]
    paths += [("reference", reference)] if reference is not None else []
    if len({path.resolve() for _, path in paths}) < len(paths):
        raise UsageError("a log is compared with itself: every role takes another file")
    firsts = {"candidate": candidate_first_step, "control": control_first_step}
    sources = [
        (
            role,
            LogSource(path, log_format, key, first_step if firsts.get(role) is None else firsts[role], pattern),
        )
        for role, path in paths
    ]
    bounds: BoundsByMetric = BoundsByMetric(
        loss=Bounds(rtol=loss_rtol, first_rtol=loss_first_rtol),
        grad_norm=Bounds(rtol=grad_norm_rtol, first_rtol=grad_norm_first_rtol),
    )
    import shlex

    judged = judge_logs(
        sources,
        profile=profile,
        bounds=bounds,
        k=k,
        steps=steps,
        require=frozenset(require),
        reproduce=shlex.join(["parity", *sys.argv[1:]]),
    )
    directory_out = None
    if out is not None:
        directory_out = RunDirectory.for_report(out)
    return deliver(judged, directory_out, make_console())
