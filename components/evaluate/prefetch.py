"""Making items in a thread of their own, ahead of whoever uses them."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T], count: int) -> Iterator[T]:
    """Yield the items in their order, with up to ``count`` of them made before they are asked for.

    What making an item raises is raised here, in its place. When the caller stops early, so does the thread.

    >>> list(ahead(range(3), 2))
    [0, 1, 2]
    """
    source, end = iter(items), object()
    with ThreadPoolExecutor(1, "ahead") as thread:
        waiting: deque[Future[Any]] = deque(thread.submit(next, source, end) for _ in range(count))
        try:
            while (item := waiting.popleft().result()) is not end:
                waiting.append(thread.submit(next, source, end))
                yield item
        finally:
            for future in waiting:
                future.cancel()
