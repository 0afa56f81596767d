"""What the recorder left of a leg beyond curves, from every rank."""

from parity.records.reading import LINE_LIMIT, SIZE_LIMIT, read_records
from parity.records.record import SLOTS, Batch, Fingerprints, LegRecords, OptimizerGroup, Part, RankRecord

__all__ = [
    "LINE_LIMIT",
    "SIZE_LIMIT",
    "SLOTS",
    "Batch",
    "Fingerprints",
    "LegRecords",
    "OptimizerGroup",
    "Part",
    "RankRecord",
    "read_records",
]
