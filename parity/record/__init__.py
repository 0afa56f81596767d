"""Runs inside a leg and writes what it computed. Needs torch only, and that not before a model is watched."""

from parity.record.recorder import FORMAT, Recorder

__all__ = ["FORMAT", "Recorder"]
