"""Run NeMo Automodel 0.7.0 without a GPU: a few places of it take for granted that there is one.

Nothing that is computed is touched. The installed package stays as it is: its modules are changed while they are
imported, and only where they name the device.
"""

import sys
from importlib.machinery import PathFinder, SourceFileLoader

import torch

__all__ = ["install"]

_DEVICES = (
    'torch.device("cuda", torch.cuda.current_device())',
    'torch.device(f"cuda:{torch.cuda.current_device()}")',
)


class _Loader(SourceFileLoader):
    def get_code(self, fullname):
        # Not the superclass's: it would read, and leave behind, bytecode of another source.
        source = self.get_source(fullname)
        for device in _DEVICES:
            source = source.replace(device, 'torch.device("cpu")')
        return self.source_to_code(source.encode(), self.path)


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] != "nemo_automodel":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install():
    """Have every later import of nemo_automodel know that there is no GPU."""
    sys.meta_path.insert(0, _Finder)
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.reset_peak_memory_stats = lambda *_: None
    # Compiling small functions for a CPU takes longer than all steps of a proxy, and a C++ compiler.
    torch.compile = lambda model=None, **_: model if model is not None else lambda function: function
