"""Iterator that computes its items ahead, in another thread."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

PREFETCHED = 4  # batches


def prefetch(items: Iterable[T], count: int) -> Iterator[T]:
    """Yield the items in order, with up to ``count`` of them computed ahead in one thread.

    An exception of the iterable is raised after the items before it. The thread ends if the caller stops early.

    >>> list(prefetch(range(3), 2))
    [0, 1, 2]
    """
    source, end, thread = iter(items), object(), ThreadPoolExecutor(1, "prefetch")
    try:
        waiting: deque[Future[Any]] = deque(thread.submit(next, source, end) for _ in range(count))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, source, end))
            yield item
    finally:
        thread.shutdown(cancel_futures=True)
