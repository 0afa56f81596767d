"""What is allowed where nobody said: bounds per dtype and device, and where each number was measured.

All gaps are relative. Runs behind the numbers, each a baseline against a correct parallel layout, fp32 on CPU
over gloo, 20 to 50 steps: DeepSpeed AutoTP 2, 3 and 4; NeMo Automodel Qwen3 DP2, TP2, PP2 and DeepSeek-V4 EP2,
PP2; transformers TP2 and TP4 of four models; Megatron-core DP2, TP2, PP2; PyTorch DDP and FSDP2. The logs are
under `tests/data/logs`, and `tests/checks/test_real_logs.py` holds the profile to them.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PROFILES", "Bound", "ParameterBound", "Profile", "with_bounds"]


@dataclass(frozen=True)
class Bound:
    """What is allowed for one metric: `atol + rtol * |baseline|`, tighter at the first step.

    Attributes:
        first_rtol: relative, at the first step, before any weight was updated.
        rtol: relative, at later steps.
        mean_rtol: relative, for the signed mean of the gap over the later steps (the check `drift`).
        atol: absolute, added at every step.
        steady_steps: up to this many updates `rtol` holds as it is; beyond, it grows, because rounding is
            amplified by training. 0 means that it never grows.
        growth: exponent of that growth.
        grown_by: after so many updates it grows no further: nobody measured longer runs.
        resolve: relative; with a perturbed leg, steps are judged as long as noise leaves a gap of this size visible.
        explicit: a person wrote `rtol` or `atol`, so no measured noise widens them.
        until: the last step that is judged, where a person says so.
        first_explicit, mean_explicit: the same for `first_rtol` and `mean_rtol`.
    """

    first_rtol: float
    rtol: float
    mean_rtol: float
    atol: float = 0.0
    steady_steps: int = 0
    growth: float = 0.0
    grown_by: int = 500
    resolve: float = 1e-3
    explicit: bool = False
    until: int | None = None
    first_explicit: bool = False
    mean_explicit: bool = False

    def factor(self, updates: NDArray[np.int64]) -> NDArray[np.float64]:
        """How far `rtol` has grown after so many updates: float64, shape of `updates`, at least 1."""
        if not self.steady_steps:
            return np.ones(updates.shape)
        return np.maximum(1.0, np.minimum(updates, self.grown_by) / self.steady_steps) ** self.growth

    def allowed(self, updates: NDArray[np.int64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
        """Absolute gap allowed at each step.

        Args:
            updates: int64 (n,), optimizer steps done before the value was computed.
            scale: float64 (n,), what gaps are relative to: the size of the baseline's values.

        Returns:
            float64 (n,).
        """
        rtol = np.where(updates <= 0, self.first_rtol, self.rtol * self.factor(updates))
        return self.atol + rtol * scale


@dataclass(frozen=True)
class ParameterBound:
    """Relative L2 distance allowed per parameter.

    Attributes:
        first: at the first step.
        later: at later steps, after updates.
        widest: a control's noise widens `first` no further than this, where no perturbed leg says that it is noise.
        median: for the median parameter at the first step, which no single noisy parameter moves; None if `first` is
            tight enough by itself.
    """

    first: float
    later: float
    widest: float
    median: float | None = None


@dataclass(frozen=True)
class Profile:
    """Bounds by metric, and the least that a noise floor can be.

    Attributes:
        name: as written in `parity.yml`.
        epsilon: machine epsilon of the training dtype (2^-23 for fp32, 2^-7 for bf16).
        floor_epsilons: the noise floor is never taken to be less than this multiple of `epsilon` at a value.
        bounds: by metric.
        gradient, update: per parameter.
        norm_rtol: relative, between the logged gradient norm and the norm of the gradients.
        only_widens: measured noise widens the bounds and never narrows them. So for a profile of a coarser dtype than
            the legs compute in: they round somewhere that moving weights does not reach, such as a reduction in bf16.
    """

    name: str
    epsilon: float
    floor_epsilons: float
    bounds: dict[str, Bound]
    gradient: ParameterBound
    update: ParameterBound
    norm_rtol: float
    only_widens: bool = False

    @property
    def least_floor(self) -> float:
        """The least that a noise floor is taken to be, relative."""
        return self.epsilon * self.floor_epsilons


# How rounding grows with training in fp32: a DeepSpeed AutoTP 3 run was 4e-7 from its baseline after 50 steps and
# 2.2e-4 after 500, hence an exponent of log10(2.2e-4 / 4e-7) = 2.7.
_GROWTH = 2.7

# Correct layouts in fp32 are 1e-6 apart per parameter (toy models) to 1.3e-3 (context parallel, Automodel#3243). Adam
# divides each element by its own size, so elements whose gradient is nothing but rounding get an update that is too:
# hyper-connections of the first layer, whose streams are still equal, were 8e-2 apart in the embedded DeepSeek-V4
# with gradients 8e-6 apart, while the median parameter was 2e-5.
_FP32: dict[str, Any] = {
    "gradient": ParameterBound(first=1e-4, later=1e-2, widest=2e-3),
    "update": ParameterBound(first=1.5e-1, later=3e-1, widest=3e-1, median=1e-3),
    "norm_rtol": 1e-5,
}

PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            name="fp32-cpu",
            epsilon=2.0**-23,
            # The floor measured in fp32 is about 2e-7 relative, for loss and gradient norm alike.
            floor_epsilons=2.0,
            bounds={
                # Correct layouts: first step up to 8.6e-8, later up to 1.6e-6, signed mean up to 2.3e-7. Smallest
                # real bugs in the same logs: 4.4e-5 at the first step (a hash-routed layer on the second stage);
                # 1.6e-4 and a signed mean of 1.4e-5 later (a routing bias updated from one rank's load).
                "loss": Bound(first_rtol=1e-6, rtol=2e-5, mean_rtol=5e-6, steady_steps=50, growth=_GROWTH),
                # Correct: first 1.2e-7, later 1.8e-5, signed mean 1.6e-6. Bugs: first 1.7e-5, later 1.8e-4.
                "grad_norm": Bound(
                    first_rtol=1e-5, rtol=1e-4, mean_rtol=2e-5, steady_steps=50, growth=_GROWTH, resolve=1e-2
                ),
            },
            **_FP32,
        ),
        Profile(
            name="fp32-gpu",
            epsilon=2.0**-23,
            floor_epsilons=2.0,
            bounds={
                # Published for uneven and even AutoTP over NCCL, 500 steps: mean 7.7e-5, worst 2.7e-3 at step 467
                # (DeepSpeedExamples#1008). TF32 has to be off.
                "loss": Bound(first_rtol=1e-6, rtol=1e-3, mean_rtol=2.5e-4, steady_steps=100, growth=_GROWTH),
                "grad_norm": Bound(
                    first_rtol=1e-5, rtol=5e-3, mean_rtol=1.25e-3, steady_steps=100, growth=_GROWTH, resolve=1e-2
                ),
            },
            **_FP32,
        ),
        Profile(
            name="bf16",
            epsilon=2.0**-7,
            # Measured in bf16: 6e-4 to 8e-4 relative for the loss of a toy model, a tenth of epsilon; an eighth of
            # that is kept as the least, so that a floor from few control legs does not raise false alarms.
            floor_epsilons=1 / 64,
            bounds={
                # Correct: NeMo Automodel, wrapped against unwrapped, 3.2e-4 in loss and 1.25e-2 in gradient norm
                # over 20 steps; torchtitan#4312, 0.2 % and 2 % at step 50.
                "loss": Bound(
                    first_rtol=1e-3, rtol=5e-3, mean_rtol=1.25e-3, steady_steps=50, growth=1.0, resolve=2e-2
                ),
                "grad_norm": Bound(
                    first_rtol=5e-3, rtol=5e-2, mean_rtol=1.25e-2, steady_steps=50, growth=1.0, resolve=2e-1
                ),
            },
            # Correct in bf16: up to 0.11 per parameter (experts, Automodel#3243).
            gradient=ParameterBound(first=5e-2, later=3e-1, widest=2e-1),
            update=ParameterBound(first=5e-1, later=1.0, widest=1.0, median=1e-1),
            norm_rtol=1e-2,
        ),
    )
}


def with_bounds(
    profile: Profile,
    metric: str,
    *,
    first_rtol: float | None = None,
    rtol: float | None = None,
    mean_rtol: float | None = None,
    atol: float | None = None,
    resolve: float | None = None,
    until: int | None = None,
) -> Profile:
    """The profile with a person's bounds for one metric; what is not given stays the profile's.

    What a person gives neither grows nor gives way to measured noise. With `rtol` given and `mean_rtol` not, the
    signed mean is held to a quarter of it, as the profiles hold the loss.
    """
    bound = profile.bounds.get(metric, profile.bounds["loss"])
    if rtol is not None:
        bound = replace(bound, rtol=rtol, mean_rtol=rtol / 4, steady_steps=0, explicit=True, mean_explicit=True)
    if atol is not None:
        bound = replace(bound, atol=atol, explicit=True)
    if first_rtol is not None:
        bound = replace(bound, first_rtol=first_rtol, first_explicit=True)
    if mean_rtol is not None:
        bound = replace(bound, mean_rtol=mean_rtol, mean_explicit=True)
    if until is not None:
        bound = replace(bound, until=until)
    if resolve is not None:
        bound = replace(bound, resolve=resolve)
    return replace(profile, bounds={**profile.bounds, metric: bound})
