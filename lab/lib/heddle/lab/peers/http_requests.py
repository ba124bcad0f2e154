"""Makes many requests by aiohttp on uvloop, so many at once, and prints what they took as a line of JSON:

    http_requests.py URL REQUESTS AT_ONCE kept|fresh [WARM_UP_URL REQUESTS]...
"""

import asyncio
import sys

import aiohttp
import uvloop

from measure import measure


async def get(session, url):
    async with session.get(url) as response:
        body = await response.read()
        if response.status != 200 or body != b"done":
            raise aiohttp.ClientError(f"wrong answer: {response.status} {body[:60]}")


async def get_all(session, url, requests, at_once):
    """The answer to a request is awaited before a task makes its next one."""
    errors = []

    async def worker(own):
        for _ in range(own, requests, at_once):
            try:
                await get(session, url)
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
                errors.append(f"{type(error).__name__}: {error}")

    await asyncio.gather(*(worker(own) for own in range(at_once)))
    return {"operations": requests - len(errors), "errors": len(errors), "first_error": next(iter(errors), None)}


async def main(url, requests, at_once, connections, *warm_ups):
    options = {"force_close": True} if connections == "fresh" else {"keepalive_timeout": 600}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, **options)) as session:
        for warm_up_url, count in zip(warm_ups[::2], warm_ups[1::2]):
            await get_all(session, warm_up_url, int(count), int(at_once))
        await measure(lambda: get_all(session, url, int(requests), int(at_once)))


if sys.argv[1] == "--version":
    print(f"aiohttp {aiohttp.__version__}, uvloop {uvloop.__version__}, Python {sys.version.split()[0]}")
else:
    uvloop.install()
    asyncio.run(main(*sys.argv[1:]))
