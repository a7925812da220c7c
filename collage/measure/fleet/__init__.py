"""A fleet: candidates are built and timed by the workers of a Dask cluster (docs/SCALE.md).

Only workers that are like this machine get jobs (`identity`). All that a job needs travels with it (`parcel`), and runs
there (`remote`). If a worker dies, hangs or is cut off, its jobs go to another one (`dispatch`). A worker whose canary
drifts from the others' gets no more timing jobs (`drift`).
"""

from collage.measure.fleet.fleet import Fleet, workers_at

__all__ = ["Fleet", "workers_at"]
