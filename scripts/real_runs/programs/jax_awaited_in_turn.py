"""Samples come from a store on the network; slow: each is waited for before the next is asked for."""

from __future__ import annotations

import asyncio
import atexit
import subprocess
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np

from scripts.real_runs.jax_training import numbers, run_steps, update, weights_of
from scripts.real_runs.step_clock import StepClock, run_blocks

SAMPLES, ROWS, WIDTH, BATCH = 64, 30, 384, 8

SERVER = f"""
import asyncio, struct, sys
sample = {ROWS * WIDTH * 4}
async def serve(reader, writer):
    try:
        while True:
            number, = struct.unpack("<i", await reader.readexactly(4))
            await asyncio.sleep(0.003)
            writer.write(bytes(sample))
            await writer.drain()
    except asyncio.IncompleteReadError:
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


class Store:
    """A client of the store, with some connections to it."""

    def __init__(self, port: int) -> None:
        self.loop = asyncio.new_event_loop()
        self._links = [
            self.loop.run_until_complete(asyncio.open_connection("127.0.0.1", port))
            for _ in range(BATCH)
        ]

    async def get(self, number: int, link: int) -> Any:
        reader, writer = self._links[link]
        writer.write(number.to_bytes(4, "little"))
        content = await reader.readexactly(ROWS * WIDTH * 4)
        return np.frombuffer(content, np.float32).reshape(ROWS, WIDTH)

    async def batch_in_turn(self, chosen: list[int]) -> Any:
        samples = []
        for link, number in enumerate(chosen):
            samples.append(await self.get(number, link))
        return np.concatenate(samples)

    async def batch_at_once(self, chosen: list[int]) -> Any:
        asked = [self.get(number, link) for link, number in enumerate(chosen)]
        return np.concatenate(await asyncio.gather(*asked))


def train(is_slow: bool, clock: StepClock) -> None:
    state = {"weights": weights_of(WIDTH, 10)}

    def step(number: int) -> Any:
        chosen = [(number * BATCH + place) % SAMPLES for place in range(BATCH)]
        batch = store.batch_in_turn(chosen) if is_slow else store.batch_at_once(chosen)
        rows = jnp.asarray(store.loop.run_until_complete(batch)) + noise
        state["weights"], loss = compiled(state["weights"], rows)
        return loss

    run_steps(clock, step)


if __name__ == "__main__":
    import jax

    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    atexit.register(server.kill)
    assert server.stdout is not None
    store = Store(int(server.stdout.readline()))
    noise = jnp.asarray(numbers(ROWS * BATCH, WIDTH))
    compiled = jax.jit(update)
    run_blocks(train)
