"""What a piece of work takes: of the clock's time, and of the processor's for this process."""

import gc
import json
import resource
import time


async def measure(work):
    """Awaits work(), which returns figures of its own, and prints them and the time as a line of JSON."""
    gc.collect()
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    figures = await work()
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"wall": wall, "user": after.ru_utime - before.ru_utime,
                      "system": after.ru_stime - before.ru_stime, "peak_rss_kib": after.ru_maxrss, **figures}))
