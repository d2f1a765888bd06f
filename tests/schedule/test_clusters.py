"""What clusters need of each other, while they merge."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tinyhlo.ir.walks import reachable
from tinyhlo.schedule.clusters import (
    Cluster,
    merge,
    needs,
    reaches_around,
    run_before,
)


def clusters_of(before: list[list[int]]) -> list[Cluster]:
    """Clusters of nothing, each of which needs some of those before it."""
    found: list[Cluster] = []
    for position, needed in enumerate(before):
        cluster = Cluster([], {}, {}, position)
        run_before([found[k] for k in needed], cluster)
        found.append(cluster)
    return found


def is_needed(first: Cluster, last: Cluster) -> bool:
    """By a walk to the beginning."""
    found = reachable([last.root()], lambda c: [other.root() for other in c.before])
    return any(cluster is first.root() for cluster in found)


@pytest.mark.parametrize("seed", range(40))
def test_needs_knows_what_a_whole_walk_finds(seed: int) -> None:
    draw = random.Random(seed)
    count = draw.randint(3, 14)
    before = [draw.sample(range(k), min(k, draw.randint(0, 3))) for k in range(count)]
    clusters = clusters_of(before)
    for _ in range(3 * count):
        first, last = (draw.choice(clusters).root() for _ in range(2))
        if first is last or is_needed(last, first):
            continue
        around = [other for other in last.before if other.root() not in (first, last)]
        assert reaches_around(first, last) == any(is_needed(first, c) for c in around)
        if draw.random() < 0.5 and not reaches_around(first, last):
            merge(last, first)
        elif draw.random() < 0.2:
            run_before([first], last)
        for one in clusters:
            for other in clusters:
                assert needs([one], other.root()) == is_needed(other, one)


def test_a_question_about_neighbours_is_not_answered_at_the_beginning() -> None:
    """Of a long chain of residual blocks each only asks about its own part."""

    class Far(set[Cluster]):
        def __iter__(self) -> Iterator[Cluster]:
            raise AssertionError("nobody needs to know")

    clusters = clusters_of([[], *([k] for k in range(50))])
    run_before([clusters[30]], clusters[50])
    for cluster in clusters[:40]:
        cluster.before = Far(cluster.before)
    assert not reaches_around(clusters[49], clusters[50])
