"""A fleet: candidates are built and timed by the workers of a Dask cluster (docs/SCALE.md).

A worker is asked only if it is like this machine (`identity`). What it needs travels with the question (`parcel`), and
runs there (`remote`). A worker that dies, hangs or is cut off loses what it was asked to another one (`dispatch`), and
one whose canary drifts from the others' is not asked to time any more (`drift`).
"""

from collage.measure.fleet.fleet import Fleet, workers_at

__all__ = ["Fleet", "workers_at"]
