"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine must not fail a test that is right.
settings.register_profile("hetsched", deadline=None)
settings.load_profile("hetsched")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Benchmark sets and traces: $HETSCHED_DATA, or ``../shared/data`` beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("HETSCHED_DATA") or beside)
    if not folder.is_dir():
        pytest.skip(f"no data at {folder}; set HETSCHED_DATA to the folder that holds hitzges/")
    return folder
