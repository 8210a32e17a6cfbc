"""Several runs of one command side by side, each in a process of its own; an interrupt ends them all in good order."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

GIB_EACH = 4  # memory that a notebook may need, with some to spare


def how_many(processors: int | None = None, memory: float | None = None) -> int:
    """Return how many notebooks to run at once: one for every two processors (two on two) and 4 GiB, at most four.

    Args:
        processors: what there is; None asks the system.
        memory: in GiB; None asks the system.
    """
    processors = processors or _processors()
    if memory is None:
        try:
            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        except (AttributeError, ValueError, OSError):  # not on every system
            memory = GIB_EACH
    return max(1, min(4, max(processors // 2, min(processors, 2)), int(memory // GIB_EACH)))


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_abreast(command: Sequence[str], inputs: Sequence[str], at_once: int) -> Iterator[tuple[int, int, str]]:
    """Run a command once for every input, and yield (number of the input, exit status, output) as they end.

    After an interrupt it yields what the processes that it ended had to say, and then raises.

    Args:
        command: what to run; it reads an input from its standard input.
        inputs: in the order in which they are begun.
        at_once: how many run at the same time; the processors' threads are shared out among them.

    Raises:
        KeyboardInterrupt: after every process that runs has been interrupted and has ended; none begins any more.
    """
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, _processors() // at_once))
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    running: set[subprocess.Popen] = set()
    stopped = False

    def one(number: int) -> tuple[int, int, str]:
        if stopped:
            return number, -signal.SIGINT, ""
        # A session of its own: an interrupt at the keyboard reaches it once, through us.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        running.add(process)
        try:
            output = process.communicate(inputs[number])[0]
        finally:
            running.discard(process)
        return number, process.returncode, output

    with ThreadPoolExecutor(at_once) as pool:
        futures: list[Future] = [pool.submit(one, number) for number in range(len(inputs))]
        told = set()
        try:
            for future in as_completed(futures):
                told.add(future.result()[0])
                yield future.result()
        except BaseException as error:
            stopped = True
            for process in list(running):
                process.send_signal(signal.SIGINT)
            if isinstance(error, KeyboardInterrupt):
                ended = [future.result() for future in futures]
                yield from (result for result in ended if result[0] not in told and result[2])
            raise
