"""What a self-test found: `selftest.json`, versioned."""

from typing import Final, Literal

from pydantic import Field

from parity import __version__
from parity.result import Model, Number, VerdictName, now

__all__ = ["FORMAT", "CleanRun", "FaultRun", "Finding", "Selftest"]

FORMAT: Final = "parity.selftest/1"


class Finding(Model):
    """What decided a verdict: the check, and how far out it found the candidate."""

    check: str
    what: str = Field(default="", description="The metric, or the parameter furthest out.")
    step: int | None = Field(default=None, description="The first step beyond what is allowed.")
    times_allowed: Number | None = None


class FaultRun(Model):
    """One fault under one layout."""

    fault: str
    mutation: str = Field(description="Its class: M1 to M20, or C1 to C3 for a control.")
    bug: str
    what: str
    layout: str
    both: bool = Field(description="Whether the baseline has it too.")
    expected: VerdictName
    verdict: VerdictName
    finding: Finding | None = None
    also: list[str] = Field(default=[], description="Other checks that failed.")
    with_control: VerdictName | None = Field(
        default=None, description="The verdict where the control has the fault too; None where that is not asked."
    )
    hints: list[str] = Field(default=[])
    summary: str

    @property
    def caught(self) -> bool:
        """Whether the verdict is the one that the catalogue says it should be."""
        return self.verdict == self.expected

    @property
    def name(self) -> str:
        """The candidate's leg."""
        return f"{self.fault}.{self.layout}"


class CleanRun(Model):
    """One correct layout with one seed."""

    model: str
    layout: str
    seed: int
    verdict: VerdictName
    worst: Finding | None = Field(default=None, description="What came nearest to what is allowed.")
    summary: str

    @property
    def alarm(self) -> bool:
        """Whether it was called wrong. Where the evidence ends too early, `inconclusive` is no accusation."""
        return self.verdict not in ("pass", "inconclusive")


class Selftest(Model):
    """The whole matrix."""

    format: Literal["parity.selftest/1"] = FORMAT
    parity_version: str = __version__
    created: str = Field(default_factory=now, description="UTC, ISO 8601.")
    dtype: Literal["fp32", "bf16"]
    steps: int
    seeds: list[int]
    seconds: float
    environment: dict[str, str] = Field(default={})
    faults: list[FaultRun]
    clean: list[CleanRun]

    @property
    def mistakes(self) -> list[FaultRun]:
        """Those of the classes M1 to M20."""
        return [run for run in self.faults if run.mutation.startswith("M")]

    @property
    def controls(self) -> list[FaultRun]:
        """Those of the classes C1 to C3."""
        return [run for run in self.faults if run.mutation.startswith("C")]

    @property
    def classes(self) -> dict[str, bool]:
        """By class of mistakes, whether it was caught in every layout that was tried."""
        found: dict[str, bool] = {}
        for run in sorted(self.mistakes, key=lambda run: int(run.mutation[1:])):
            found[run.mutation] = found.get(run.mutation, True) and run.caught
        return found

    @property
    def alarms(self) -> list[CleanRun]:
        """Correct layouts that were called wrong."""
        return [run for run in self.clean if run.alarm]

    @property
    def undecided(self) -> list[CleanRun]:
        """Correct layouts of which nothing could be said."""
        return [run for run in self.clean if run.verdict == "inconclusive"]

    @property
    def as_it_should_be(self) -> bool:
        """No false alarm and no error; and in fp32 every fault is caught, with the same fault in the control too, and
        every control is what it should be. bf16 hides some for certain."""
        if not (self.faults or self.clean) or self.alarms or any(run.verdict == "error" for run in self.faults):
            return False
        seen = all(run.caught for run in self.faults) and all(run.with_control != "pass" for run in self.mistakes)
        return self.dtype != "fp32" or (seen and not self.undecided)

    def dumps(self) -> str:
        """The text of `selftest.json`."""
        return self.model_dump_json(indent=1) + "\n"
