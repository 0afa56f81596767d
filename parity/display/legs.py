"""A leg with what is drawn of it."""

from parity.checks.comparison import Leg
from parity.display.holdings import holdings, sharded
from parity.display.logs import tails
from parity.result import LegResult
from parity.rundir import RunDirectory

__all__ = ["with_display"]


def with_display(directory: RunDirectory, leg: LegResult, judged: Leg | None) -> LegResult:
    """The leg with what its ranks hold, what it trained on first, and the ends of its logs if it did not end well.

    Whatever its `leg.json` says of these goes: they are read anew.
    """
    records = judged.records if judged is not None else None
    batches = records.ranks[0].batches if records is not None and records.ranks else {}
    batch = batches[min(batches)] if batches else None
    well = leg.status in ("finished", "read") and not leg.error
    return leg.model_copy(
        update={
            "samples": batch.samples if batch else None,
            "micro_batches": batch.micro_batches if batch else None,
            "holds": holdings(records),
            "sharded": sharded(records),
            "tails": [] if well or leg.status == "not run" else tails(directory, leg),
        }
    )
