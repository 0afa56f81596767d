"""What a difference looks like: the likely cause, from ratios, cosines, groups, layouts and curves. Pure.

A hint is never a check: it changes no verdict, and says `looks like`. Each is a small function that names the public
bug which it comes from and takes `Facts`; it is shown if nothing more telling explains the same.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from parity.checks.comparison import Comparison
from parity.checks.hints import losses, norms, reduced, reporting, scaled, starts, updates, where
from parity.checks.hints.facts import Facts, Hint
from parity.checks.outcome import Outcome, Verdict

__all__ = ["MOST_HINTS", "hints", "reporting_bug"]

MOST_HINTS = 4
"""More would be read as a list of everything that there is."""

_Finder = Callable[[Facts], Iterable[Hint] | Hint | None]

# The most telling first: what numbers show exactly, then what only fits.
_FINDERS: tuple[_Finder, ...] = (
    starts.not_finite,
    starts.other_start,
    starts.other_samples,
    starts.not_training,
    reduced.unreduced,
    scaled.scaled,
    where.no_gradient,
    norms.logged_norm,
    updates.not_updated,
    updates.scaled_update,
    losses.placeholder,
    losses.rank_loss,
    losses.scaled_loss,
    losses.offset,
    updates.decayed,
    where.part_of_the_batch,
    where.rounded,
    where.furthest_group,
    reduced.replicated_only,
    where.one_group,
    losses.weighted,
    where.upstream,
    reduced.parted,
    updates.one_group_moves,
    losses.forward,
    norms.norm_factor,
    updates.elsewhere,
    starts.not_applied,
)


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def hints(comparison: Comparison, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Likely causes of what the checks found, the most telling first; empty where they found nothing.

    Args:
        comparison: the legs.
        outcomes: what `run_checks` answered for them.

    Returns:
        At most `MOST_HINTS` sentences, each with its numbers and the words `looks like`.
    """
    if all(outcome.verdict is Verdict.PASS for outcome in outcomes):
        return ()
    facts = Facts(comparison, outcomes)
    shown: list[Hint] = []
    for find in _FINDERS:
        found = find(facts)
        for hint in [found] if isinstance(found, Hint) else found or ():
            said = [one for one in shown if one.topic == hint.topic]
            explained = frozenset[str]().union(*(one.names for one in said))
            if not said or (hint.names and not hint.names <= explained):
                shown.append(hint)
    return tuple(f"{hint.text[0].upper()}{hint.text[1:]}." for hint in shown[:MOST_HINTS])


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def reporting_bug(comparison: Comparison, outcomes: Sequence[Outcome]) -> str:
    """Why what was trained is right and only what was logged is wrong, for the verdict; empty where it is not so.

    Args:
        comparison: the legs.
        outcomes: what `run_checks` answered for them.
    """
    return reporting.told(Facts(comparison, outcomes))
