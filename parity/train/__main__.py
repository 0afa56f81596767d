"""`python -m parity.train`: be one rank of a leg."""

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from parity.errors import UsageError
from parity.record import Recorder
from parity.train.arguments import Arguments, parse
from parity.train.options import problems

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Train as the command line says, in the environment that `process.join` reads.

    Returns:
        0 after the last step; 2 or 4 for a mistake that a person must act on, told in lines on standard
        error; 1 for anything else, with its traceback there.
    """
    arguments = parse(argv)
    try:
        _run(arguments, Recorder.from_env())
    except UsageError as error:
        print(*error.lines, sep="\n", file=sys.stderr, flush=True)
        return error.exit_code
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0


def _run(arguments: Arguments, recorder: Recorder) -> None:
    # Left in this order: the error is on record before the process group goes, whose end makes the other
    # ranks fail with errors of their own.
    with ExitStack() as stack, _recorded(recorder):
        misfits = problems(arguments.options, arguments.layout)
        if misfits:
            raise UsageError(*(f"{name}: {sentence}" for name, sentence in misfits))
        # Only now: `--help` and mistakes are answered without waiting for torch.
        from parity.train.loop import train
        from parity.train.process import join

        process = stack.enter_context(join(arguments.layout, arguments.device, arguments.options.threads))
        train(
            arguments.options,
            process.mesh,
            steps=arguments.steps,
            seed=arguments.seed,
            device=process.device,
            recorder=recorder,
            environment=process.environment(),
        )


@contextmanager
def _recorded(recorder: Recorder) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        recorder.error(error)
        raise


if __name__ == "__main__":
    sys.exit(main())
