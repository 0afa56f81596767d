"""The legs that a suite has made of its baselines, to measure how far correct runs differ."""

from collections.abc import Iterator

from parity.document import Problem
from parity.suite.suite import Compare, Leg, Suite, Trainer, run_of
from parity.suite.values import PERTURB, Floor

__all__ = ["with_floor_legs"]

_LONGEST = 64


def with_floor_legs(suite: Suite) -> tuple[Suite, list[Problem]]:
    """The suite with those legs behind its own, and their names in each comparison; no `floor` is left in it.

    A role in which a comparison names a leg itself is not made for it by the suite's default.

    Returns:
        The suite, and what is wrong, each as the path of the key and what would be right.
    """
    making = _Making(suite)
    compare = [making.compare(index, item) for index, item in enumerate(suite.compare)]
    made = {name: leg for name, leg in making.made.items() if name not in suite.legs}
    update = {"legs": {**suite.legs, **made}, "compare": compare, "floor": None}
    whole = suite.model_copy(update=update)
    return whole, [*making.problems, *_others(whole)]


def _others(suite: Suite) -> Iterator[Problem]:
    """Legs that are named as the baseline again, or perturbed, and run something else."""
    for index, item in enumerate(suite.compare):
        for role in ("repeat", "perturbed"):
            for name in getattr(item, role):
                if name not in suite.legs or item.baseline not in suite.legs:
                    continue
                mine, theirs = run_of(suite, name, ""), run_of(suite, item.baseline, "")
                mine["env"].pop(PERTURB, None)
                odd = [key for key in mine | theirs if mine.get(key) != theirs.get(key)]
                if odd:
                    text = f"{name} is not {item.baseline} again: its {', '.join(odd)} differ; as a control it may"
                    yield ("compare", index, role), text


class _Making:
    """Legs by name, as the comparisons ask for them.

    Attributes:
        made: the legs.
        problems: what is wrong.
    """

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self.made: dict[str, Leg] = {}
        self.problems: list[Problem] = []

    def compare(self, index: int, item: Compare) -> Compare:
        """The comparison with its legs named."""
        own = item.floor is not None
        at: tuple[str | int, ...] = ("compare", index, "floor") if own else ("compare", index)
        baseline = self._suite.legs.get(item.baseline)
        update: dict[str, object] = {"floor": None}
        for role, count in (item.floor or self._suite.floor or Floor()).model_dump().items():
            if not count or baseline is None:
                continue
            if getattr(item, role):
                if own:
                    self.problems.append((at, f"makes {role} legs, and `{role}:` names one: give one of the two"))
                continue
            names = [self._add(name, leg, at) for name, leg in self._legs(role, count, item.baseline, baseline, at)]
            update[role] = (names[0] if names else None) if role == "reference" else tuple(names)
        return item.model_copy(update=update)

    def _legs(
        self, role: str, count: int, name: str, baseline: Leg, at: tuple[str | int, ...]
    ) -> Iterator[tuple[str, Leg]]:
        suite = self._suite
        if role == "reference":
            if suite.command_of(baseline) is not None:
                text = (
                    f"no reference can be made of {name}, which does not run the embedded trainer: add a leg of your"
                    " own that computes in float64, and name it `reference:`"
                )
                self.problems.append((at, text))
                return
            own = {} if baseline.trainer is None else baseline.trainer.model_dump()
            yield (
                f"{name}.reference",
                baseline.model_copy(update={"trainer": Trainer.model_validate({**own, "dtype": "fp64"})}),
            )
            return
        for number in range(1, count + 1):
            env = {**baseline.env, PERTURB: str(number)} if role == "perturbed" else baseline.env
            suffix = f"-{number}" if number > 1 else ""
            yield f"{name}.{role}{suffix}", baseline.model_copy(update={"env": env})

    def _add(self, name: str, leg: Leg, at: tuple[str | int, ...]) -> str:
        written, source = self._suite.legs.get(name), leg.source or self._suite.source
        if len(name) > _LONGEST:
            text = (
                f"a leg would be made with the name {name}, of more than {_LONGEST} letters: shorten the baseline's"
            )
            self.problems.append((at, text))
        elif written is not None and written.model_dump() != leg.model_dump():
            text = (
                f"is another leg than the one of this name that `floor` makes of {name.rpartition('.')[0]}: rename it"
            )
            self.problems.append((("legs", name), text))
        elif source is not None and not any(f"{{{word}}}" in source.file for word in ("out", "leg", "run_id")):
            text = f"the metrics of {name} would be in the baseline's file: let `source` name {{out}} or {{leg}}"
            self.problems.append((at, text))
        self.made[name] = leg
        return name
