"""Settings of the whole folder."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tensors this small gain nothing from threads, and lose much where others need the cores too."""
    torch.set_num_threads(1)
