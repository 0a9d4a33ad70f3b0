"""The benchmarks are not in the wheel, so without a checkout their tests have nothing to test."""

from __future__ import annotations

from pathlib import Path

collect_ignore_glob = [] if (Path(__file__).parents[2] / "benchmarks").is_dir() else ["test_*"]
