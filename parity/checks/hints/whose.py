"""How hints call a set of parameters."""

from collections.abc import Collection

from parity.checks.hints.facts import Facts
from parity.checks.words import plural

__all__ = ["PREFERRED", "Whose", "is_bias", "whose"]

_OWNERS = {
    "connections": "the hyper-connections'",
    "norms": "the norms'",
    "router": "the router's",
    "shared experts": "the shared experts'",
    "experts": "the experts'",
    "embeddings": "the embeddings'",
    "attention": "attention's",
    "mlp": "the MLP's",
    "biases": "the biases'",
}

# Which of several equal sizes is meant, by whose gradients are wrong.
PREFERRED = {
    "experts": ("ep", "tp"),
    "router": ("ep", "dp", "fsdp", "dp × fsdp", "micro-batches"),
    "norms": ("tp", "cp"),
    "attention": ("tp", "cp"),
    "embeddings": ("pp", "tp"),
}
_ANY = ("dp", "fsdp", "dp × fsdp", "dp × fsdp × cp", "cp", "tp", "micro-batches", "ep", "pp")


class Whose:
    """Some parameters of a model, in words.

    Attributes:
        group: the one group that all are of, `biases`, `all`, or empty.
        owner: such as `the experts'`; empty if no word fits all of them.
        count: such as `24 of 24 parameters`, of the group if there is one.
        some: the first names.
        whole: whether they are all that there is of the group, or of the model.
    """

    def __init__(self, names: Collection[str], group: str, of: int) -> None:
        self.group = group
        self.owner = _OWNERS.get(group, "")
        self.count = f"{len(names)} of {plural(of, 'parameter')}"
        self.whole = len(names) == of
        listed = sorted(names)
        self.some = ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")

    def told(self, noun: str = "gradients") -> str:
        """Such as `the experts' gradients`, `all gradients`, or `the gradients of embed.weight, norm.weight`."""
        if self.group == "all":
            return f"all {noun}"
        if self.owner and self.whole:
            return f"{self.owner} {noun}"
        return f"the {noun} of {self.some}{f', some of {self.owner},' if self.owner else ''}"

    def prefer(self) -> tuple[str, ...]:
        """The sizes that a mistake in these is most likely to be of."""
        return (*PREFERRED.get(self.group, ()), *_ANY)


def whose(facts: Facts, names: Collection[str]) -> Whose:
    """What these parameters have in common, among those whose gradient or update says anything."""
    telling = {**facts.agreeing, **facts.differing}
    known = {**dict.fromkeys(names, ""), **{n: one.group for n, one in telling.items()}}
    for at in (facts.gradients, facts.updates):
        known |= {n: one.group for n, one in at.parameters.items() if n in names} if at else {}
    if len(names) > 1 and set(names) >= telling.keys():
        return Whose(names, "all", len(names))
    groups = {known[name] for name in names}
    if len(groups) == 1 and groups & _OWNERS.keys():
        group = groups.pop()
        return Whose(names, group, sum(one == group for one in known.values()))
    if all(is_bias(name) for name in names):
        return Whose(names, "biases", sum(is_bias(name) for name in known))
    return Whose(names, "", len(known))


def is_bias(name: str) -> bool:
    """Whether a parameter is a bias by its name."""
    return name.endswith("bias")
