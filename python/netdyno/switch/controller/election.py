"""Election of a master among controllers, by etcd.

The master holds a key with a lease. The key's revision is the generation id of its role: etcd gives out each
once and in ascending order, so a switch refuses a master of the past. Followers watch the key. They also keep
a connection to the master's process: if that ends and its host refuses a new one, the process is dead, and
its lease is ended at once. A host that does not answer proves nothing: then the lease decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable

from netdyno.switch.controller.etcd import Etcd, EtcdError, KeyValue

MASTER_KEY = "/netdyno/chain/master"
LEASE = 2
"""Seconds; etcd grants no shorter one with its default timing."""
PAUSE = 0.2
"""Seconds between two attempts to reach an etcd that does not answer."""


class Election:
    """Takes part for one controller until it is cancelled."""

    def __init__(self, etcd: Etcd, name: str, host: str, port: int) -> None:
        self.etcd, self.name, self.host, self.port = etcd, name, host, port
        self.error = ""
        """Why there is no election at the moment."""

    async def run(
        self, lead: Callable[[int], Awaitable[None]], follow: Callable[[int], Awaitable[None]]
    ) -> None:
        """Call `lead` or `follow` with the generation id whenever this controller becomes that."""
        while True:
            try:
                lease = await asyncio.to_thread(self.etcd.grant, LEASE)
                about = json.dumps({"name": self.name, "host": self.host, "port": self.port})
                won, key = await asyncio.to_thread(self.etcd.create, MASTER_KEY, about, lease)
                self.error = ""
                if won:
                    leading = asyncio.create_task(self._hold(lease))
                    try:
                        await lead(key.created)
                        await leading
                    finally:
                        leading.cancel()
                    await follow(key.created)
                else:
                    await asyncio.to_thread(self.etcd.revoke, lease)
                    await follow(key.created)
                    await self._until_gone(key)
            except EtcdError as e:
                self.error = str(e)
                await asyncio.sleep(PAUSE)

    async def _hold(self, lease: int) -> None:
        """Renew the lease; returns when it is lost."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LEASE
        while loop.time() < until:
            await asyncio.sleep(LEASE / 4)
            asked = loop.time()
            try:
                # who cannot reach etcd is master no longer than its lease
                async with asyncio.timeout(until - asked):
                    if not await asyncio.to_thread(self.etcd.keep_alive, lease):
                        return
                until, self.error = asked + LEASE, ""
            except TimeoutError:
                self.error = f"etcd does not answer for the {LEASE} s of a lease"
            except EtcdError as e:
                self.error = str(e)

    async def _until_gone(self, key: KeyValue) -> None:
        loop, gone = asyncio.get_running_loop(), asyncio.Event()

        def deleted() -> None:
            # nobody waits any more where the loop has ended
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(gone.set)

        end = await asyncio.to_thread(self.etcd.watch, MASTER_KEY, key.created + 1, deleted)
        watching = asyncio.create_task(self._process_dead(key, gone))
        try:
            await gone.wait()
        finally:
            watching.cancel()
            end()

    async def _process_dead(self, key: KeyValue, gone: asyncio.Event) -> None:
        try:
            about = json.loads(key.value)
            host, port = str(about["host"]), int(about["port"])
        except (ValueError, KeyError, TypeError):
            raise EtcdError(f"the key {MASTER_KEY} has the value {key.value[:80]!r}") from None
        while True:
            try:
                reader, writer = await asyncio.open_connection(host, port, local_addr=(self.host, 0))
            except ConnectionRefusedError:
                await asyncio.to_thread(self.etcd.revoke, key.lease)
                gone.set()
                return
            except OSError:
                return
            try:
                with contextlib.suppress(OSError):
                    await reader.read()
            finally:
                writer.close()
