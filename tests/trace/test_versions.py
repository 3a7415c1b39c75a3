"""A version of PyTorch that was not tested is named; a tested one is not."""

import logging

import pytest
import torch

from chainrule.trace.versions import warn_of


@pytest.mark.parametrize("version", ["2.5.1", "2.16.0a0+git12", "3.0.0", "1.13.1+cu117"])
def test_another_version_is_named(version, caplog):
    with caplog.at_level(logging.WARNING):
        warn_of(version)
    assert caplog.messages == [
        f"PyTorch {version}: Chainrule was tested with 2.6 to 2.15, so a recording may lack ops or gradients"
    ]


@pytest.mark.parametrize("version", ["2.6.0", "2.13.0+cpu", "2.15.1+cu132", torch.__version__])
def test_a_tested_version_has_no_warning(version, caplog):
    with caplog.at_level(logging.WARNING):
        warn_of(version)
    assert not caplog.messages
