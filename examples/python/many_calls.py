"""Many snippets at once and one session, from asyncio: python examples/python/many_calls.py"""

from __future__ import annotations

import asyncio

from actum import Runtime


async def squares(rt: Runtime, count: int) -> int:
    """Each in its own interpreter; snippets without a free slot wait without a thread."""
    results = await asyncio.gather(*(rt.aio.python(f"{n} ** 2") for n in range(count)))
    return sum(each.check().output for each in results)


async def analysis(rt: Runtime) -> dict[str, object]:
    """One interpreter for all steps, as an agent would use it; every step has its own receipt."""
    async with rt.aio.python_session(files={"sales.csv": "mon,3\ntue,5\nwed,4\n"}) as session:
        await session.run(
            "import csv\nrows = {day: int(n) for day, n in csv.reader(open('sales.csv'))}"
        )
        failed = await session.run("rows['sun']")
        best = await session.run("max(rows, key=rows.get)")
        return {"failed": failed.outcome.value, "best": best.output}


async def main() -> None:
    with Runtime.temporary() as rt:
        print(await squares(rt, 20))
        print(await analysis(rt))


if __name__ == "__main__":
    asyncio.run(main())
