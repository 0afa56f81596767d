"""The checks: named questions put to a comparison. Curves in, outcomes out; no files, no clock, no torch."""
