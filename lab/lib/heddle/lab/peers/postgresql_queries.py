"""Sends queries to PostgreSQL by asyncpg on uvloop, and prints what they took as a line of JSON:

    postgresql_queries.py URL OPERATION COUNT QUERY_OF_ROWS
"""

import asyncio
import datetime
import sys

import asyncpg
import uvloop

from measure import measure

TASKS = 100
POOL = 10


def check(value, expected):
    if value != expected:
        raise ValueError(f"{value!r} instead of {expected!r}")


async def one_after_another(one, count):
    for number in range(1, count + 1):
        await one(number)


async def main(url, operation, count, query_of_rows):
    pool = await asyncpg.create_pool(url, min_size=1, max_size=POOL if operation == "pool" else 1)
    client = await pool.acquire() if operation != "pool" else None
    statement = await client.prepare("select 1 as a, $1::int as b") if operation == "kept" else None

    async def kept(number):
        check((await statement.fetchrow(number))[1], number)

    async def rows(_):
        found = await client.fetch(query_of_rows)
        check((len(found), found[-1]["id"], type(found[0]["at"])), (1000, 1000, datetime.datetime))

    async def task(number):
        check(await pool.fetchval("select $1::int", number), number)

    async def tasks(_):
        await asyncio.gather(*(task(number) for number in range(TASKS)))

    one, queries = {"kept": (kept, 1), "rows": (rows, 1), "pool": (tasks, TASKS)}[operation]
    turns = int(count) // queries
    await one_after_another(one, turns)  # warms up

    async def work():
        await one_after_another(one, turns)
        return {"operations": turns * queries}

    await measure(work)


if sys.argv[1] == "--version":
    print(f"asyncpg {asyncpg.__version__}, uvloop {uvloop.__version__}, Python {sys.version.split()[0]}")
else:
    uvloop.install()
    asyncio.run(main(*sys.argv[1:]))
