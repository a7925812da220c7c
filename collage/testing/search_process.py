"""A search in a process of its own: `python -m collage.testing.search_process random|large SECONDS < searcher.pickle`.

`random` prints the answers to some random problems, to be compared between hash seeds. `large` searches a large
problem with a budget; a searcher that goes on for longer than it may is ended by SIGALRM.
"""

from __future__ import annotations

import pickle
import signal
import sys

from collage.search import Searcher
from collage.testing.problems import large_given, random_given

_PROBLEMS = 12


def main(arguments: list[str]) -> None:
    searcher: Searcher = pickle.load(sys.stdin.buffer)
    if arguments[0] == "random":
        for number in range(_PROBLEMS):
            print([str(c) for c in searcher.search(random_given(number).problem()).candidates])
        return
    budget_s, limit_s = map(float, arguments[1:])
    given = large_given()
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    problem = given.problem(budget_s=budget_s)
    found = searcher.search(problem)
    signal.setitimer(signal.ITIMER_REAL, 0)
    covered = sorted(node for c in found.candidates for node in c.sub_graph.inside)
    print("a cover" if covered == list(problem.nodes) else "no cover")


if __name__ == "__main__":
    main(sys.argv[1:])
