"""The questions one asks after a verdict, answered from what a run left."""

from parity.show.answer import Question, answer
from parity.show.opened import Opened, open_run

__all__ = ["Opened", "Question", "answer", "open_run"]
