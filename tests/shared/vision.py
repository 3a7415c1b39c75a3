"""torchvision, whose transforms timm and transformers import."""

import sys

import torch


def import_torchvision() -> torch.library.Library | None:
    """Import it; the result must live as long as it is used.

    Its ops are compiled for CUDA and do not load beside a PyTorch for the CPU: two of them are then declared here.
    """
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for op in ("nms", "qnms"):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision  # noqa: F401

        return library
    return None
