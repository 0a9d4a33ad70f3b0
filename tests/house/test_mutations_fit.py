"""The known faults can be put back into the code of today: who changes a line that one replaces renews its patch."""

from __future__ import annotations

import pytest

from tests.harness.mutation import Mutation, mutations
from tests.harness.tree import ROOT


@pytest.mark.parametrize("fault", mutations(), ids=lambda fault: fault.name)
def test_patch_fits_the_code(fault: Mutation):
    for file, old, _ in fault.changes:
        assert f"\n{(ROOT / file).read_text('utf-8')}".count("\n" + old) == 1, f"{fault.name}.patch does not fit {file}"
