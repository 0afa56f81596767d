"""Runs inside a leg and writes what it computed. Needs the standard library only."""

from parity.record.recorder import FORMAT, Recorder

__all__ = ["FORMAT", "Recorder"]
