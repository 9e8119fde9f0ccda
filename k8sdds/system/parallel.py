"""Run independent tasks in parallel: on all cores, in forked processes; or in threads, if they wait."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import TypeVar

T = TypeVar("T")
Item = TypeVar("Item")

MAX_PROCESSES = 8
THREADS = 16

_NUMBER = struct.Struct("I")


def run(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Run all tasks and return their results in order. Raises the exception of a task that failed.

    Each process, including this one, takes the next task when it has finished one. The others inherit the data of
    the tasks, so only results are copied. They end when this function ends, also on an error and on Ctrl-C.
    """
    count = min(len(os.sched_getaffinity(0)), len(tasks), MAX_PROCESSES)
    # A fork has only the current thread. Locks that other threads hold would stay locked in it.
    if count < 2 or threading.active_count() > 1:
        return [task() for task in tasks]
    context = multiprocessing.get_context("fork")
    children: list[tuple[ForkProcess, Connection]] = []
    # All processes read the numbers of tasks from this pipe, which holds 16,384 of them.
    queue, numbers = os.pipe()
    # Garbage collections then leave the memory shared by all processes alone, so that it is not copied.
    gc.freeze()
    try:
        os.write(numbers, b"".join(_NUMBER.pack(number) for number in range(len(tasks))))
        os.close(numbers)
        for _ in range(count - 1):
            receiver, sender = context.Pipe(duplex=False)
            receivers = [receiver, *(other for _, other in children)]
            process = context.Process(target=_run_child, args=(sender, receivers, queue, tasks), daemon=True)
            process.start()
            sender.close()
            children.append((process, receiver))
        results = _run_next(queue, tasks)
        for _, receiver in children:
            results |= _receive(receiver)
    finally:
        os.close(queue)
        gc.unfreeze()
        for process, receiver in children:
            receiver.close()
            process.terminate()
            process.join()
    # A process that was killed, for example because memory ran out, has sent no results.
    return [results[number] if number in results else task() for number, task in enumerate(tasks)]


def in_threads(function: Callable[[Item], T], items: Sequence[Item]) -> list[T]:
    """Return the results of a function for all items, of which `THREADS` run at a time. Raises its first exception."""
    if not items:
        return []
    with ThreadPoolExecutor(min(THREADS, len(items))) as executor:
        try:
            return list(executor.map(function, items))
        except BaseException:
            # After Ctrl-C too, what has not begun never does.
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def _run_next(queue: int, tasks: Sequence[Callable[[], T]]) -> dict[int, T]:
    """Run tasks until the queue is empty; return their results by number."""
    results = {}
    while item := os.read(queue, _NUMBER.size):
        (number,) = _NUMBER.unpack(item)
        results[number] = tasks[number]()
    return results


def _run_child(
    sender: Connection, receivers: Sequence[Connection], queue: int, tasks: Sequence[Callable[[], T]]
) -> None:
    # If the parent is killed, sending a result then fails; with an open receiver, it would wait forever.
    for receiver in receivers:
        receiver.close()
    # The parent ends this process; the terminal sends Ctrl-C to both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        sender.send(_run_next(queue, tasks))
    except BrokenPipeError:
        pass
    except Exception as error:
        sender.send(error)


def _receive(receiver: Connection) -> dict[int, T]:
    try:
        outcome = receiver.recv()
    except EOFError:
        return {}
    if isinstance(outcome, Exception):
        raise outcome
    results: dict[int, T] = outcome
    return results
