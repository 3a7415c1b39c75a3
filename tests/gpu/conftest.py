import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _device():
    assert torch.cuda.is_available(), "these tests need a CUDA device; `make test` leaves them out"
