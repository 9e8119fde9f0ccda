"""Run independent tasks on all cores, in forked processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TypeVar

T = TypeVar("T")

MAX_PROCESSES = 8


def run(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Run all tasks and return their results in order.

    Of n processes, each runs every n-th task; this process is one of them. The others inherit the data of the tasks,
    so only results are copied. They end when this function ends, also on an error and on Ctrl-C.

    Raises:
        Exception: The exception of a task that failed.
    """
    count = min(len(os.sched_getaffinity(0)), len(tasks), MAX_PROCESSES)
    # A fork has only the current thread. Locks that other threads hold would stay locked in it.
    if count < 2 or threading.active_count() > 1:
        return [task() for task in tasks]
    shares = [tasks[number::count] for number in range(count)]
    context = multiprocessing.get_context("fork")
    children = []
    # Garbage collections then leave the memory shared by all processes alone, so that it is not copied.
    gc.freeze()
    try:
        for share in shares[1:]:
            receiver, sender = context.Pipe(duplex=False)
            receivers = [receiver, *(other for _, other in children)]
            process = context.Process(target=_run_share, args=(sender, receivers, share), daemon=True)
            process.start()
            sender.close()
            children.append((process, receiver))
        outcomes = [[task() for task in shares[0]]]
        for share, (_, receiver) in zip(shares[1:], children, strict=True):
            outcomes.append(_receive(receiver, share))
    finally:
        gc.unfreeze()
        for process, receiver in children:
            receiver.close()
            process.terminate()
            process.join()
    return [outcomes[number % count][number // count] for number in range(len(tasks))]


def _run_share(sender: Connection, receivers: Sequence[Connection], tasks: Sequence[Callable[[], T]]) -> None:
    # If the parent is killed, sending a result then fails; with an open receiver, it would wait forever.
    for receiver in receivers:
        receiver.close()
    # The parent ends this process; the terminal sends Ctrl-C to both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        sender.send([task() for task in tasks])
    except BrokenPipeError:
        pass
    except Exception as error:
        sender.send(error)


def _receive(receiver: Connection, share: Sequence[Callable[[], T]]) -> list[T]:
    try:
        outcome = receiver.recv()
    except EOFError:
        # The process was killed, for example because memory ran out.
        return [task() for task in share]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
