"""Run the legs of a suite, untrusted as they may be, and write down how. Standard library, Python 3.9 or newer.

    python3 -I entrypoint/launch.py [run | preflight | cleanup]

`run` is the default; `preflight` only says what would keep the legs from running; `cleanup` removes what a cancelled
run of this job left, for a step with `if: always()`. The inputs are in `INPUT_*`, see `entrypoint.inputs`.

With isolation `docker` the legs run in one container: no token, no socket, no file of the runner; the repository
read-only at /src, where they run; one folder of theirs, /out; no network unless asked for; no capabilities; not as
root. With `process` they run as processes of this job and nothing isolates them; see `entrypoint.launching.process`.
Either way nothing of them is left when this ends, however it ends, and `out` holds no link, whoever made it. Python
has to be isolated (`-I`), as PYTHONPATH may lead into the checkout.

Exit codes: 0 where there is a run to judge, whatever its verdict; 2 wrong inputs; 4 the machine lacks something, or
nothing came out; 130 and 143 after SIGINT and SIGTERM. The step's shell must make way (`exec python3 -I ...`), as the
runner signals only the process that it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TextIO

# Run by its path, which puts this folder first, and modules of its names over others of these names.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [str(_HERE.parent), *(path for path in sys.path if os.path.realpath(path) != str(_HERE))]

from entrypoint.commands import defuse, stop_commands, warning  # noqa: E402
from entrypoint.inputs import InputError, Inputs  # noqa: E402
from entrypoint.launching import cache, container, leftovers, process, tree  # noqa: E402
from entrypoint.launching.engine import program_environment  # noqa: E402
from entrypoint.launching.findings import ENVIRONMENT, USAGE, LaunchError, one_line, wrong  # noqa: E402
from entrypoint.launching.keeper import Task, keep  # noqa: E402
from entrypoint.launching.linux import hide_environment  # noqa: E402
from entrypoint.launching.preflight import Ready, identity, preflight  # noqa: E402
from entrypoint.launching.record import Launch, has_run, now  # noqa: E402
from entrypoint.launching.setup import FAILED  # noqa: E402
from entrypoint.launching.source import (  # noqa: E402
    Source,
    host_path,
    in_checkout,
    out_folder,
    prepare_out,
    seal,
    tested_sha,
)
from entrypoint.launching.stops import Interrupted, Stops  # noqa: E402
from entrypoint.launching.supervise import Ended, supervise  # noqa: E402

__all__ = ["main"]


def main(argv: Sequence[str] = (), env: Mapping[str, str] | None = None) -> int:
    """Do what the one word on the command line says; returns the exit code."""
    env = dict(os.environ) if env is None else env
    word = argv[0] if argv else "run"
    if word == "keeper" and len(argv) == 1:
        return keep()
    hide_environment()
    code = ENVIRONMENT
    try:
        code = _main(word, argv, env)
    finally:
        # Whatever happened: what uploads this folder follows the links in it.
        source = Source(env)
        if not _sealed(_given(env), source):
            code = code if code > 128 else ENVIRONMENT
    return code


def _main(word: str, argv: Sequence[str], env: Mapping[str, str]) -> int:
    if len(argv) > 1 or word not in ("run", "preflight", "cleanup"):
        _say(f"{' '.join(argv)}: none of run, preflight, cleanup", wrong=True)
        return USAGE
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    stops = Stops()
    stops.listen()
    try:
        inputs = Inputs.from_env(env)
        if word == "cleanup":
            _drop_note_of_another(_given(env), Source(env), env)
            return leftovers.remove(inputs, env, _say)
        if word == "preflight":
            return _only_preflight(inputs, env, stops)
        return _Run(inputs, env, stops).run()
    except InputError as error:
        _say(str(error), wrong=True)
        if word == "run":
            unread = Inputs(suite=env.get("INPUT_SUITE", "").strip(), out=_given(env))
            _Run(unread, env, stops).refused(LaunchError(wrong(*str(error).split(": ", 1))))
        return USAGE
    except LaunchError as error:
        _say(str(error), wrong=True)
        return error.finding.exit_code
    except Interrupted:
        return 128 + stops.first


def _given(env: Mapping[str, str]) -> Path:
    """The output folder, also where some other input is wrong."""
    return out_folder(Path(env.get("INPUT_OUT", "").strip() or Inputs.out), Source(env))


def _sealed(folder: Path, source: Source, keep: Sequence[str] | None = None) -> tree.Counts | None:
    """See `seal`. Where that fails, there is nothing that could be uploaded; the line that says so is printed."""
    try:
        return seal(folder, source, keep)
    except Exception as error:  # whatever the legs have thought of
        text = error.strerror if isinstance(error, OSError) else type(error).__name__
        _say(f"out: {folder}: cannot be swept ({text}), and what the legs left is removed", wrong=True)
    with contextlib.suppress(Exception):
        tree.remove(folder / "run")
    with contextlib.suppress(Exception):
        if in_checkout(folder, source):
            tree.empty(folder, ("launch.json",))
    return None


def _drop_note_of_another(folder: Path, source: Source, env: Mapping[str, str]) -> None:
    """Remove a `launch.json` that no launch of this attempt has written, as where no launch came about."""
    note = folder / "launch.json"
    if not in_checkout(folder, source) or not os.path.lexists(note):
        return
    try:
        with note.open(encoding="utf-8") as file:
            found = json.load(file)
        ours = all(found[key] == env.get(f"GITHUB_{key.upper()}", "") for key in ("run_id", "run_attempt"))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        ours = False
    if not ours:
        with contextlib.suppress(OSError):
            tree.remove(note)


def _only_preflight(inputs: Inputs, env: Mapping[str, str], stops: Stops) -> int:
    with stops.raising():
        out, _ = prepare_out(inputs.out, Source(env), empty=False)
        ready = preflight(inputs, env, out, _say)
        if ready.isolation == "process" and not ready.errors:
            with _home() as home:
                process.interpreter(env, process.environment(env, home, inputs.gpus), home)
    _report(ready)
    return ready.exit_code


class _Run:
    """One launch, from its inputs to `launch.json`."""

    def __init__(self, inputs: Inputs, env: Mapping[str, str], stops: Stops) -> None:
        self.inputs, self.env, self.stops = inputs, env, stops
        self.source = Source(env)
        self.folder = out_folder(inputs.out, self.source)
        self.prepared = self.swept = False
        self.kept: Path | None = None
        self.id = secrets.token_hex(8)
        self.note = Launch(
            suite=one_line(inputs.suite),
            timeout=inputs.timeout,
            runner={"os": env.get("RUNNER_OS") or platform.system(), "arch": platform.machine()},
            run_id=env.get("GITHUB_RUN_ID", ""),
            run_attempt=env.get("GITHUB_RUN_ATTEMPT", ""),
        )

    def run(self) -> int:
        self.note.started = now()
        code = ENVIRONMENT
        try:
            # Before anything can fail, as an earlier run in its place would be taken for this one.
            out, run = prepare_out(self.inputs.out, self.source)
            self.prepared = True
            code = self._run(out, run)
        except LaunchError as error:
            self._refuse(error)
            _say(str(error), wrong=True)
            code = error.finding.exit_code
        except Interrupted:
            self.note.how, code = "interrupted", 128 + self.stops.first
        finally:
            code = self._leave(code)
        return code

    def refused(self, error: LaunchError) -> None:
        """Write down why there is no launch."""
        self.note.started = now()
        with contextlib.suppress(LaunchError):
            prepare_out(self.inputs.out, self.source)
            self.prepared = True
        self._refuse(error)
        self._leave(error.finding.exit_code)

    def _refuse(self, error: LaunchError) -> None:
        self.note.error = str(error)
        self.note.preflight.append({"level": "error", "name": error.finding.name, "text": error.finding.text})

    def _seal(self) -> bool:
        """Leave in the output folder what legs may leave, and nothing else."""
        counts = _sealed(self.folder, self.source, keep=("run",))
        self.swept = True
        if counts is None:
            self.note.error = f"out: {self.folder}: cannot be swept, and what the legs left is removed"
            return False
        if self.note.how != "not started":
            self.note.output = asdict(counts)
        if counts.removed or counts.renamed:
            _say(f"out: {counts.removed} links and the like removed, {counts.renamed} files renamed for the upload")
        return True

    def _leave(self, code: int) -> int:
        """However it went: no link is left, and the note is ours."""
        self.note.ended = now()
        if not self.swept and not self._seal() and code <= 128:
            code = ENVIRONMENT
        if not self.prepared and not in_checkout(self.folder, self.source):
            return code
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tree.remove(self.folder / "launch.json")
            self.note.write(self.folder)
        except OSError as error:
            if self.prepared:
                _say(f"out: {self.folder}/launch.json cannot be written: {error.strerror}", wrong=True)
            code = code or ENVIRONMENT
        return code

    def _run(self, out: Path, run: Path) -> int:
        note = self.note
        with self.stops.raising():
            note.tested_sha = tested_sha(self.source)
            ready = preflight(self.inputs, self.env, out, _say)
            self._write_down(ready)
            _report(ready)
            if ready.errors:
                note.error = str(ready.errors[0])
                return ready.exit_code
        if self.inputs.mode == "all" and self.inputs.isolation == "auto" and ready.isolation == "process":
            text = f"the legs run as processes of a job that has a token, not isolated, as {ready.why};"
            with contextlib.suppress(OSError, ValueError):
                warning(f"{text} run them in a job of their own, or say isolation: process", title="parity")
        with _home() as home, leftovers.State(self.env, self.id, home) as state:
            with self.stops.raising():
                isolated = ready.isolation == "docker"
                task, env = self._container(ready, run, state) if isolated else self._process(ready, run, home)
            task = replace(task, home=str(home))
            note.argv = task.argv
            _say(f"legs: run {'in a container' if isolated else 'as processes, not isolated'}, as {ready.why}")
            try:
                ended = self._supervise(task, env, state)
            finally:
                if self.kept is not None:
                    cache.close(self.kept)
        note.how, note.exit_code, note.seconds = ended.how, ended.exit_code, round(ended.seconds, 3)
        swept = self._seal()
        code = self._verdict(ended, has_run(run), swept)
        return code if swept or code > 128 else ENVIRONMENT

    def _write_down(self, ready: Ready) -> None:
        note, gpus = self.note, ready.gpus
        note.suite, note.isolation, note.why = ready.suite, ready.isolation, ready.why
        note.gpus = {"asked": gpus.asked, "devices": list(gpus.devices), "method": gpus.method}
        note.found(ready.findings)
        if ready.isolation == "docker":
            note.network, note.shm_size = self.inputs.network, self.inputs.shm_size
        if ready.engine is not None:
            name = "podman" if ready.engine.podman else os.path.basename(ready.engine.program)
            note.engine = {"name": name, "version": ready.engine.version}
        if ready.image is not None:
            note.image = {"name": ready.image.name, "id": ready.image.id, "digest": ready.image.digest}

    def _container(self, ready: Ready, run: Path, state: leftovers.State) -> tuple[Task, dict[str, str]]:
        assert ready.engine is not None
        assert ready.image is not None
        user, options, owner = identity(ready.engine, os.geteuid(), os.getegid())
        if owner is not None:
            os.chown(run, owner, owner)
        self.note.user = user
        environment = container.environment(self.env, self.inputs.network)
        if self.inputs.cache is not None and self.note.tested_sha is None:
            _say("cache: not used, as nobody can tell which commit is checked out")
        elif self.inputs.cache is not None:
            self.kept = cache.prepare(self.inputs.cache, self.note.tested_sha or "", self.source, owner)
            environment["PARITY_IMAGE"] = ready.image.digest or ready.image.id
        made = container.Container(
            program=ready.engine.program,
            image=ready.image.name,
            name=f"parity-{self.id}",
            labels=leftovers.labels(self.env, self.id),
            cidfile=state.cidfile,
            user=user,
            source=str(self.source.host),
            out=str(host_path(run, self.source)),
            command=[
                *("run", ready.suite, *self._only()),
                *(["--cache", container.CACHE] if self.kept is not None else []),
                *("--out", container.OUT),
            ],
            cache="" if self.kept is None else str(host_path(self.kept, self.source)),
            network=self.inputs.network,
            shm_size=self.inputs.shm_size,
            gpus=ready.gpus,
            env=environment,
            hidden=ready.hidden,
            entrypoint=ready.image.entrypoint,
            setup=self.inputs.setup,
            options=options,
        )
        label = f"{container.LABEL}.launch={self.id}"
        task = Task(made.argv(), "/", ready.engine.program, label, state.cidfile)
        return task, program_environment(self.env, proxies=False)

    def _process(self, ready: Ready, run: Path, home: Path) -> tuple[Task, dict[str, str]]:
        if self.inputs.cache is not None:
            _say("cache: not used, as legs that nothing isolates could fill it for other commits")
        stripped = process.environment(self.env, home, self.inputs.gpus)
        python = process.interpreter(self.env, stripped, home)
        return Task(
            process.legs(python, [ready.suite, *self._only()], run, self.inputs.setup, home), str(self.source.path)
        ), stripped

    def _only(self) -> list[str]:
        """The legs of this job, as words of a command line."""
        return [word for name in self.inputs.only for word in ("--only", name)]

    def _supervise(self, task: Task, env: Mapping[str, str], state: leftovers.State) -> Ended:
        with stop_commands():
            return supervise(
                task,
                keeper=[sys.executable, "-I", os.path.abspath(__file__), "keeper"],
                env=env,
                timeout=self.inputs.timeout,
                stops=self.stops,
                show=_show,
                begun=state.write,
            )

    def _verdict(self, ended: Ended, judged: bool, swept: bool) -> int:
        """The exit code, and the line that says what became of the legs."""
        took = f"after {ended.seconds:.1f} s"
        if ended.how == "interrupted":
            self.note.error = f"legs: interrupted {took}"
            _say(self.note.error, wrong=True)
            return 128 + self.stops.first
        if ended.how == "timed out":
            said = f"legs: timed out {took} (timeout: {self.inputs.timeout:g} s)"
        elif ended.exit_code == FAILED and self.inputs.setup:
            said = f"setup: failed {took}, as the output above says"
        elif self.note.isolation == "docker" and ended.exit_code in (125, 126, 127):
            said = f"legs: the container did not start (exit code {ended.exit_code}), as the output above says"
        elif ended.exit_code in (None, 137):
            said = f"legs: killed {took}, by the kernel for want of memory or by hand"
        else:
            said = f"legs: ended {took} with exit code {ended.exit_code}"
        _say(said, wrong=not judged)
        if judged:
            return 0
        if swept:
            self.note.error = said
        return USAGE if ended.exit_code == USAGE and ended.how == "finished" else ENVIRONMENT


def _home() -> contextlib.AbstractContextManager[Path]:
    return leftovers.temporary_folder()


def _report(ready: Ready) -> None:
    for finding in ready.findings:
        _say(str(finding), wrong=finding.level == "error")


def _say(line: str, wrong: bool = False) -> None:
    _show(one_line(line, 1000), sys.stderr if wrong else sys.stdout)


def _show(line: str, stream: TextIO | None = None) -> None:
    """Print a line that may hold anything. Nobody may be listening any more, and there is work to do all the same."""
    with contextlib.suppress(OSError, ValueError):
        print(defuse(line), file=stream or sys.stdout, flush=True)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)
