"""Which calls of a model are a step's micro-batches."""

import torch
from torch.distributed.pipelining import PipelineStage

from parity.record.inputs import Inputs

IDS = torch.arange(6).view(2, 3)


def _forward_metadata_inference(inputs: Inputs) -> None:
    """Called as torch's stage calls its module, from a function of this name."""
    inputs.take(True, (IDS,), {})(torch.zeros(()))


def test_a_call_of_a_pipeline_that_asks_for_shapes_is_no_micro_batch() -> None:
    # torchtitan's first stage recorded ten samples at step 0, of a batch of eight.
    assert hasattr(PipelineStage, _forward_metadata_inference.__name__), "torch calls it otherwise now"
    inputs = Inputs()
    _forward_metadata_inference(inputs)
    assert inputs.batch() is None
    assert inputs.loss() is None
    for _ in range(2):
        inputs.take(True, (IDS,), {})(torch.zeros(()))
    batch = inputs.batch()
    assert batch is not None
    assert len(batch) == 2
