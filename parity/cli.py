"""The command line. Thin: every command reads its arguments, calls one function and prints."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from parity import __version__
from parity.errors import UsageError
from parity.exits import FiniteRange, Group

__all__ = ["main"]

# Everything beyond click is imported inside the commands: `parity --help` has to answer at once.

_RECIPES = Path(__file__).parent / "recipes"
_PROFILES = ("fp32-cpu", "fp32-gpu", "bf16")


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="parity")
def main() -> None:
    """Does a model trained under a parallel layout still compute the same thing as the plain run?

    Exit codes: 0 pass, 1 fail, 2 wrong usage, 3 inconclusive, 4 error.
    """


def _recipes() -> list[str]:
    return sorted(str(path.relative_to(_RECIPES).with_suffix("")) for path in _RECIPES.glob("*/*.yml"))


def _suite_path(suite: str) -> Path:
    """A file, or else the name of a recipe."""
    path = Path(suite)
    if path.exists() or path.suffix in (".yml", ".yaml"):
        return path
    if suite in _recipes():
        return _RECIPES / f"{suite}.yml"
    raise UsageError(f"{suite}: neither a file nor a recipe; the recipes are {', '.join(_recipes())}")


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def apply(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def _log_option(name: str, help_: str) -> Callable[[Any], Any]:
    return click.option(name, multiple=True, type=click.Path(path_type=Path), metavar="PATH", help=help_)


_OUT = click.option("--out", type=click.Path(path_type=Path), help="Where the report goes.")


@main.command()
@click.argument("suite", default="parity.yml")
@click.option("--only", multiple=True, metavar="LEG", help="Run this leg only; repeatable. Others stay as they are.")
@click.option("--steps", type=click.IntRange(1), help="Instead of the suite's steps.")
@click.option("--seed", type=click.IntRange(0), help="Instead of the suite's seed.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Instead of the suite's device.")
@click.option("--slots", type=click.IntRange(1), help="CPU ranks that may run at the same time.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("parity-out"), show_default=True, help="Run directory."
)
def run(
    suite: str,
    only: tuple[str, ...],
    steps: int | None,
    seed: int | None,
    device: str | None,
    slots: int | None,
    out: Path,
) -> int:
    """Run the legs of SUITE, a file or a recipe's name, and compare them."""
    from dataclasses import replace

    from parity.deliver import deliver, make_console
    from parity.judge import judge_run
    from parity.progress import show_progress
    from parity.run import Run, check_only, choose_device
    from parity.run import run as run_legs
    from parity.rundir import RunDirectory, Snapshot, new_run_id
    from parity.schedule import Slots
    from parity.suite import load

    path = _suite_path(suite)
    given = {"steps": steps, "seed": seed, "device": device}
    loaded = load(path, {key: value for key, value in given.items() if value is not None})
    names = check_only(loaded, only)
    here = Slots.here()
    if slots is not None:
        here = replace(here, cpu=slots)
    chosen, note = choose_device(loaded, names, here)
    directory, moved = RunDirectory.create(out, keep=bool(only), legs=names)
    snapshot = Snapshot(
        run_id=new_run_id(),
        reproduce=_reproduce_run(suite, only, given),
        device=chosen,
        suite=loaded,
    )
    directory.write("suite.json", snapshot.model_dump_json(indent=1) + "\n")
    console = make_console()
    for line in (f"the earlier run is now in {moved}" if moved else "", note):
        if line:
            console.print(line, markup=False, soft_wrap=True)
    plan = Run(loaded, Path() if path.is_relative_to(_RECIPES) else path.parent, directory, snapshot, names, here)
    layouts = {name: str(loaded.legs[name].sizes()) for name in names}
    with show_progress(console, layouts, loaded.steps) as take:
        run_legs(plan, take)
    result = judge_run(directory)
    return deliver(result, directory, console)


def _reproduce_run(suite: str, only: tuple[str, ...], given: dict[str, Any]) -> str:
    import shlex

    words = ["parity", "run", suite]
    for name in only:
        words += ["--only", name]
    for key, value in given.items():
        if value is not None:
            words += [f"--{key}", str(value)]
    return shlex.join(words)


def _key(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    wrong = [name for name, equals, key in pairs if not (name and equals and key)]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not metric=key, such as grad_norm=train/grad_norm")
    return {name: key for name, _, key in pairs}


@main.command()
@click.argument("run_dir", required=False, type=click.Path(path_type=Path))
@click.option("--baseline", type=click.Path(path_type=Path), help="Log of the plain run.")
@click.option("--candidate", type=click.Path(path_type=Path), help="Log of the run in question.")
@_log_option("--control", "Log of a layout trusted to be right; repeatable.")
@_log_option("--repeat", "Log of the plain run again; repeatable.")
@_log_option("--perturbed", "Log of the plain run with every weight moved by one ulp; repeatable.")
@click.option("--reference", type=click.Path(path_type=Path), help="Log of the plain run in float64.")
@click.option("--profile", type=click.Choice(_PROFILES), help="What is allowed; by default what the logs say.")
@click.option("--steps", type=click.IntRange(1), help="Steps that each log must have.")
@click.option("--format", "log_format", help="Format of the logs; by default told from their content.")
@click.option(
    "--key", multiple=True, callback=_key, metavar="METRIC=KEY", help="Key that holds a metric; repeatable."
)
@click.option("--first-step", type=int, default=0, help="Number that the baseline's log gives to the first step.")
@click.option("--candidate-first-step", type=int, help="The same for the candidate's log; --first-step if not given.")
@click.option("--control-first-step", type=int, help="The same for controls' logs; --first-step if not given.")
@click.option("--loss-rtol", type=FiniteRange(0), help="Relative bound of the loss after the first step.")
@click.option("--loss-first-rtol", type=FiniteRange(0), help="Relative bound of the first loss.")
@click.option("--grad-norm-rtol", type=FiniteRange(0), help="Relative bound of the gradient norm.")
@click.option("--grad-norm-first-rtol", type=FiniteRange(0), help="Relative bound of the first gradient norm.")
@click.option("--k", type=FiniteRange(1), default=8.0, show_default=True, help="Times the noise floor allowed.")
@click.option("--require", multiple=True, metavar="CHECK", help="Check without which there is no pass; repeatable.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for result.json and report.md.")
@click.pass_context
def compare(
    context: click.Context,
    run_dir: Path | None,
    baseline: Path | None,
    candidate: Path | None,
    control: tuple[Path, ...],
    repeat: tuple[Path, ...],
    perturbed: tuple[Path, ...],
    reference: Path | None,
    profile: str | None,
    steps: int | None,
    log_format: str | None,
    key: dict[str, str],
    first_step: int,
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
    """Judge a run directory again, or logs that exist already."""
    from parity.checks import CHECKS
    from parity.deliver import deliver, make_console
    from parity.judge import judge_run
    from parity.judge_logs import LogSource, Role, judge_logs
    from parity.rundir import RunDirectory
    from parity.suite import Bounds, BoundsByMetric

    if run_dir is not None:
        given = [
            parameter.opts[0]
            for parameter in context.command.params
            if parameter.name != "run_dir"
            and context.get_parameter_source(parameter.name or "") is not click.core.ParameterSource.DEFAULT
        ]
        if given:
            raise UsageError(
                f"{', '.join(given)}: only for logs; a run directory is judged by the suite that was run"
            )
        directory = RunDirectory(run_dir)
        return deliver(judge_run(directory), directory, make_console())
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
        (role, LogSource(path, log_format, key, first_step if firsts.get(role) is None else firsts[role] or 0))
        for role, path in paths
    ]
    bounds: BoundsByMetric = BoundsByMetric(
        loss=Bounds(rtol=loss_rtol, first_rtol=loss_first_rtol),
        grad_norm=Bounds(rtol=grad_norm_rtol, first_rtol=grad_norm_first_rtol),
    )
    import shlex

    result = judge_logs(
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
    return deliver(result, directory_out, make_console())


@main.command()
@click.argument("suite", default="parity.yml")
def validate(suite: str) -> int:
    """Check SUITE, a file or a recipe's name, without running anything."""
    from parity.run import choose_device
    from parity.schedule import Slots
    from parity.suite import load

    loaded = load(_suite_path(suite))
    click.echo(f"{suite}: {len(loaded.legs)} legs, {len(loaded.compare)} comparisons, {loaded.steps} steps")
    for name, leg in loaded.legs.items():
        click.echo(f"  {name}: {leg.sizes()}, {leg.ranks} rank{'s' if leg.ranks > 1 else ''}")
    device, note = choose_device(loaded, list(loaded.legs), Slots.here())
    click.echo(f"  here the legs would run on {device}{f': {note}' if note else ''}")
    return 0


@main.command()
@click.argument("path", default="parity.yml", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def init(path: Path, force: bool) -> int:
    """Write a commented parity.yml to begin with."""
    template = Path(__file__).parent / "recipes" / "init.yml"
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(template.read_text(encoding="utf-8"))
    except FileExistsError:
        raise UsageError(f"{path}: exists already; --force overwrites it") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    click.echo(f"wrote {path}; `parity validate {path}` checks it, `parity run {path}` runs it")
    return 0


@main.command()
@click.argument("run_dir", default="parity-out", type=click.Path(path_type=Path))
@click.option("--format", "kind", type=click.Choice(["terminal", "markdown"]), default="terminal", show_default=True)
def report(run_dir: Path, kind: str) -> int:
    """Show the report of RUN_DIR again, from its result.json."""
    from parity.checks.outcome import Verdict
    from parity.deliver import make_console
    from parity.report.markdown import render_markdown
    from parity.report.terminal import render_terminal
    from parity.result import read_result

    result = read_result(run_dir / "result.json" if run_dir.is_dir() else run_dir)
    if kind == "markdown":
        click.echo(render_markdown(result), nl=False)
    else:
        render_terminal(result, make_console())
    return Verdict(result.verdict).exit_code


@main.command()
@click.option("--quick", is_flag=True, help="One fault of each class, and one seed: two minutes on two cores.")
@click.option("--dtype", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True)
@click.option("--fault", multiple=True, metavar="NAME", help="Only this fault; repeatable.")
@click.option("--seeds", type=click.IntRange(0), help="How many runs of each correct layout; 6 if not given.")
@click.option("--steps", type=click.IntRange(4), default=10, show_default=True, help="Of each leg.")
@click.option("--slots", type=click.IntRange(1), help="CPU ranks that may run at the same time.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("parity-selftest"),
    show_default=True,
    help="Output folder.",
)
def selftest(
    quick: bool, dtype: str, fault: tuple[str, ...], seeds: int | None, steps: int, slots: int | None, out: Path
) -> int:
    """Put known faults into the embedded trainer and see which are caught; run correct layouts and see which fail.

    Exit code 1 if a correct layout fails, or in fp32 a fault does not. Writes selftest.json and selftest.md.
    """
    from dataclasses import replace

    from parity.deliver import make_console
    from parity.document import suggestion
    from parity.report.selftest import render_selftest, render_selftest_markdown
    from parity.schedule import Slots
    from parity.selftest.cases import fault_cases
    from parity.selftest.progress import show_legs
    from parity.selftest.run import selftest as run_selftest
    from parity.train.faults import FAULTS

    for name in fault:
        if name not in FAULTS:
            raise UsageError(f"--fault {name}: no such fault{suggestion(name, FAULTS)}")
    count = seeds if seeds is not None else 0 if fault else 1 if quick else 6
    here = Slots.here()
    if slots is not None:
        here = replace(here, cpu=slots)
    console = make_console()
    with show_legs(console) as on_leg:
        result = run_selftest(
            out,
            cases=fault_cases(quick, fault),
            seeds=range(1, count + 1),
            dtype="bf16" if dtype == "bf16" else "fp32",
            steps=steps,
            slots=here,
            on_leg=on_leg,
        )
    (out / "selftest.json").write_text(result.dumps(), encoding="utf-8")
    (out / "selftest.md").write_text(render_selftest_markdown(result), encoding="utf-8")
    render_selftest(result, console)
    return 0 if result.as_it_should_be else 1
