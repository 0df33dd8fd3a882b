"""The simulation notices every decision that is undone: otherwise its silence would prove nothing."""

from typing import Final

import pytest

from tests.simulation.mutants import mutants
from tests.simulation.plan import draw_plan
from tests.simulation.run_plan import run_plan

seeds_max: Final = 200
"""Seeds within which a mutant must be caught."""
telling: Final = {
    "over_a_gap": (0,),
    "applied_twice": (0,),
    "lower_dropped_unseen": (7,),
    "unknown_dropped": (26,),
    "chain_unchecked": (7,),
    "buffer_drained_unchecked": (490, 695),
    "acknowledged_before_commit": (0,),
    "fork_ignored": (3,),
    "pairs_kept_after_reset": (3,),
    "rows_kept_after_reset": (3,),
    "position_past_a_hole": (5,),
    "head_forgotten": (0,),
    "lower_head_believed": (53,),
    "sequence_only": (7,),
    "lost_group_kept": (3,),
    "absence_believed": (44,),
    "intents_in_refill": (7,),
    "silence_kept_in_memory": (139, 318, 338),
    "incarnation_not_followed": (7,),
    "signature_unchecked": (26,),
    "proven_by_the_first": (26,),
}
"""Seeds that tell of each. Where a change makes one tell nothing the others are asked, which takes longer."""


@pytest.mark.parametrize("name", mutants)
def test_an_undone_decision_is_noticed(name: str) -> None:
    """MWP-WRK-029, PRJ-1, PRJ-3, NEW-1, RULE-18…22: each mutant violates what the checker demands."""
    with mutants[name]():
        for seed in (*telling[name], *range(seeds_max)):
            if run_plan(draw_plan(seed)).violation is not None:
                return
    pytest.fail(f"no seed of {seeds_max} notices the mutant {name}: {mutants[name].__doc__}", pytrace=False)
