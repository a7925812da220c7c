"""The benchmark of transfer: calibrating and scoring are done with different records, and calibrating helps."""

from pathlib import Path

from benchmarks.estimators.networks import recorded_candidates
from benchmarks.transfer import transfer
from estimators.cost_model.shipped import shipped

LOG = Path(__file__).parents[2] / "benchmarks" / "records" / "xeon-1-thread.jsonl.gz"


def test_the_model_that_ships_is_calibrated_for_one_thread() -> None:
    records = [record for record in recorded_candidates([LOG], 1).values() if record.seconds]
    before, after = transfer(shipped(records[0].device), records, 60, seed=0)
    assert before.count == after.count < len(records) - 58
    assert after.mape < 0.6 * before.mape
    assert after.coverage > before.coverage + 0.2
