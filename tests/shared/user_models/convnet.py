"""A small convolutional net with batch normalization and dropout: buffers that a pass moves, and random numbers."""

import torch
from torch import nn


class ConvNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.dropout = nn.Dropout(0.5)
        self.classifier = nn.Linear(16, classes)

    def forward(self, images):
        features = self.features(images).flatten(1)
        return self.classifier(self.dropout(features))


def make():
    labels = torch.randint(10, (8,))
    return ConvNet(), torch.randn(8, 3, 16, 16), lambda logits: nn.functional.cross_entropy(logits, labels)
