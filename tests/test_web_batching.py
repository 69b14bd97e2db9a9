"""The queue before the model: order, limits, failures."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from ekgn.web.batching import Batcher, Busy


def test_the_queue_refuses_rather_than_grows() -> None:
    everyone_asked = threading.Event()

    def slow(key: str, items: Any) -> list[int]:
        assert everyone_asked.wait(60)
        return list(items)

    async def many() -> list[Any]:
        batcher: Batcher[str, int, int] = Batcher(slow, most=4, most_waiting=10)
        asked = [asyncio.create_task(batcher.ask("key", [n])) for n in range(20)]
        await asyncio.wait(asked[10:])
        everyone_asked.set()
        results = await asyncio.gather(*asked, return_exceptions=True)
        batcher.close()
        return results

    results = asyncio.run(many())
    assert results[:10] == [[n] for n in range(10)]
    assert all(isinstance(result, Busy) for result in results[10:])


def test_a_failing_batch_fails_only_its_own() -> None:
    def work(key: str, items: Any) -> list[int]:
        if key == "bad":
            raise ValueError("no")
        return [2 * item for item in items]

    async def both() -> tuple[Any, Any]:
        batcher: Batcher[str, int, int] = Batcher(work, most=8)
        results = await asyncio.gather(
            batcher.ask("good", list(range(20))), batcher.ask("bad", [1]), return_exceptions=True
        )
        batcher.close()
        return results

    good, bad = asyncio.run(both())
    assert good == [2 * n for n in range(20)]
    assert isinstance(bad, ValueError)
