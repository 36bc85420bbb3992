"""One thread, one seed, and two lengths of fuzzing: CONTCONV_FUZZ=long searches longer, and afresh each time."""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "short", max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=[*HealthCheck]
)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=[*HealthCheck])
settings.load_profile(os.environ.get("CONTCONV_FUZZ", "short"))

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
