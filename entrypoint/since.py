"""What a run's numbers depend on, as hashes, and which of it is another than at the last run that passed. Pure."""

import hashlib
import json
from collections.abc import Sequence

from entrypoint.runs import Links, Run
from parity.result import Result

__all__ = ["changed", "facts", "last_pass"]

_WORDS = {
    "parity": "parity's version",
    "legs": "the legs' settings",
    "comparisons": "what is compared, and by which bounds",
}
# Of what legs record of their environment, where the same legs have another value.
_ENVIRONMENT = (
    "torch", "cuda", "device", "dtype", "deterministic", "threads", "backend", "matmul_precision", "matmul_tf32",
    "cudnn_tf32", "cudnn_deterministic", "cudnn_benchmark",
)  # fmt: skip


def facts(result: Result) -> dict[str, str]:
    """By name, the hash of each; of what is not known there is none."""
    known = {
        "parity": result.parity_version,
        "legs": sorted((leg.name, leg.digest) for leg in result.legs if leg.digest),
        "comparisons": [
            [one.baseline, one.candidate, one.controls, one.repeats, one.perturbed, one.reference, one.profile, one.k]
            for one in result.comparisons
        ],
        **{
            key: sorted({str(leg.environment[key]) for leg in result.legs if leg.environment.get(key) is not None})
            for key in _ENVIRONMENT
        },
    }
    return {
        key: hashlib.sha256(json.dumps(value).encode(errors="replace")).hexdigest()[:8]
        for key, value in known.items()
        if value
    }


def last_pass(runs: Sequence[Run]) -> Run | None:
    """The newest run before the first of these that passed."""
    earlier = [run for run in runs[1:] if run.verdict == "pass" and run.number < runs[0].number]
    return max(earlier, key=lambda run: run.number, default=None)


def changed(runs: Sequence[Run], links: Links) -> str:
    """One item of a list: what is another since the last pass; empty where this run passes, or none is known.

    Args:
        runs: the one that is reported, then earlier ones.
        links: to the web pages.
    """
    run, passed = runs[0], last_pass(runs)
    if run.verdict == "pass" or passed is None:
        return ""
    same_commit = run.sha == passed.sha
    commits = (
        "of the same commit"
        if same_commit
        else f"commits [`{passed.sha[:7]}...{run.sha[:7]}`]({links.compare(passed.sha, run.sha)})"
    )
    both = [key for key in run.facts if key in passed.facts]
    others = [_WORDS.get(key, f"`{key}`") for key in both if run.facts[key] != passed.facts[key]]
    if others:
        what = f"; other than then: {', '.join(others)}"
    elif same_commit:
        what = "; nothing that is known here is other than then, so the run itself may not be deterministic"
    elif both:
        what = "; settings and environment are as they were"
    else:
        what = ""
    when = f"[run {passed.run}]({links.run(passed)}), {passed.time}"
    return f"- **Since the last pass** ({when}): {commits}{what}\n"
