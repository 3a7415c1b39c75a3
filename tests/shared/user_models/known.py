"""Two nets that many people know, with random weights: their pictures are looked at."""

import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(Path(__file__).parents[1]))
from vision import import_torchvision

LIBRARY = import_torchvision()


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=1000, n_embd=96, n_head=6, bos_token_id=0, eos_token_id=0, use_cache=False)
    tokens = torch.randint(0, 1000, (2, 32))
    return GPT2LMHeadModel(config), {"input_ids": tokens, "labels": tokens}, lambda out: out.loss


def resnet18():
    import timm

    labels = torch.arange(4)
    return (
        timm.create_model("resnet18", num_classes=10),
        torch.randn(4, 3, 64, 64),
        lambda out: cross_entropy(out, labels),
    )
