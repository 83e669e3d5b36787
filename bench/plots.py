"""Plots as SVG: bars and lines, without a library.

Reads `bench/results.json` only, so the pictures show the figures beside them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from math import log10
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs" / "plots"
_COLOURS = ("#2a6f97", "#e76f51", "#2a9d8f", "#e9c46a", "#8d99ae", "#9b5de5", "#588157", "#bc6c25",
            "#6d6875", "#118ab2")  # fmt: skip
_FONT = 'font-family="system-ui, sans-serif" font-size="12"'


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {_FONT}>'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
        f'<text x="12" y="22" font-size="15" fill="#222">{escape(title)}</text>'
        + "".join(parts)
        + "</svg>\n"
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333">{escape(text)}</text>'


def bars(
    title: str,
    values: Mapping[str, float],
    unit: str = "",
    *,
    marked: Collection[str] = ("actum", "actum, repeated"),
) -> str:
    """Horizontal bars on a logarithmic scale: ratios differ by powers of ten."""
    ordered = sorted(values.items(), key=lambda item: item[1])
    low = min(0.0, *(log10(max(value, 1e-3)) for _, value in ordered)) - 0.3
    high = max(log10(max(value, 1e-3)) for _, value in ordered)
    parts = []
    for row, (name, value) in enumerate(ordered):
        y = 40 + row * 26
        width = 12 + 380 * (log10(max(value, 1e-3)) - low) / max(high - low, 1e-9)
        colour = _COLOURS[1] if name in marked else _COLOURS[0]
        parts += [
            _text(150, y + 14, name, "end"),
            f'<rect x="158" y="{y}" width="{width:.1f}" height="18" fill="{colour}"/>',
            _text(164 + width, y + 14, f"{value:g}{unit}"),
        ]
    return _svg(640, 52 + 26 * len(ordered), title, parts)


def stacked(title: str, rows: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """One bar per row, cut into its parts."""
    longest = max(sum(parts.values()) for parts in rows.values()) or 1
    drawn, y = [], 40
    for row, parts in rows.items():
        x = 20.0
        drawn.append(_text(x, y + 12, f"{row}: {sum(parts.values()):.2f} {unit}"))
        for index, value in enumerate(parts.values()):
            width = 600 * value / longest
            colour = _COLOURS[index % len(_COLOURS)]
            drawn.append(
                f'<rect x="{x:.1f}" y="{y + 18}" width="{width:.1f}" height="24" fill="{colour}"/>'
            )
            x += width
        for index, (name, value) in enumerate(parts.items()):
            column, line = index % 3, index // 3
            colour = _COLOURS[index % len(_COLOURS)]
            left, top = 20 + 205 * column, y + 60 + 18 * line
            drawn.append(f'<rect x="{left}" y="{top - 9}" width="10" height="10" fill="{colour}"/>')
            drawn.append(_text(left + 15, top, f"{name} {value:.2f}"))
        y += 78 + 18 * ((len(parts) + 2) // 3)
    return _svg(640, y, title, drawn)


def lines(title: str, series: Mapping[str, Mapping[str, float]], across: str, up: str) -> str:
    """Points by category along the bottom, one line per series, logarithmic upwards."""
    categories = list(next(iter(series.values())))
    every = [value for points in series.values() for value in points.values() if value > 0]
    low, high = log10(min(every)) - 0.1, log10(max(every)) + 0.1

    def point(index: int, value: float) -> tuple[float, float]:
        x = 70 + 430 * index / max(1, len(categories) - 1)
        return x, 250 - 200 * (log10(max(value, 1e-3)) - low) / (high - low)

    parts = [
        '<path d="M60 50 V255 H510" fill="none" stroke="#999"/>',
        _text(285, 292, across, "middle"),
    ]
    parts += [_text(point(i, 1)[0], 272, name, "middle") for i, name in enumerate(categories)]
    parts += [_text(56, point(0, value)[1] + 4, f"{value:g}", "end") for value in _ticks(low, high)]
    parts.append(_text(12, 42, up))
    for number, (name, points) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        where = [point(i, points[c]) for i, c in enumerate(categories)]
        path = " ".join(f"{'M' if not i else 'L'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(where))
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in where]
        parts.append(
            f'<rect x="520" y="{52 + 20 * number}" width="10" height="10" fill="{colour}"/>'
        )
        parts.append(_text(535, 61 + 20 * number, name))
    return _svg(660, 305, title, parts)


def _ticks(low: float, high: float) -> list[float]:
    powers = range(int(low) - 1, int(high) + 2)
    found = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    return [value for value in found if low <= log10(value) <= high]


def _requests(results: Mapping[str, Any]) -> str:
    found = {
        kind if how == "differ" else f"{kind}, {how}": rows["ratios"]["bare"]
        for kind, ways in results["requests_that_differ"]["kinds"].items()
        for how, rows in ways.items()
    }
    title = "Requests that differ and requests that repeat, ÷ bare (p50)"
    return bars(title, found, "×", marked=results["requests_that_differ"]["kinds"])


def draw(results: Mapping[str, Any]) -> list[str]:
    """Draw every picture; returns their names."""
    execution = results["execution"]
    PICTURES.mkdir(parents=True, exist_ok=True)
    pictures = {"requests": _requests(results)}
    true, python = execution["true"]["ratios"], execution["python"]["ratios"]
    pictures["true"] = bars("/bin/true, ÷ a bare process (p50)", {"bare": 1.0, **true}, "×")
    pictures["python"] = bars(
        "A Python snippet, ÷ bare python3 -c (p50)", {"bare": 1.0, **python}, "×"
    )
    pictures["throughput"] = lines(
        "Executions per second",
        execution["throughput"]["per_second"],
        "callers at once",
        "per second",
    )
    load = {
        f"{name} {quantile}": {rate: row[f"{quantile}_ms"] for rate, row in rates.items()}
        for name, rates in execution["load"].items()
        for quantile in ("p50", "p95")
    }
    pictures["load"] = lines("Latency under open-loop load", load, "requests per second", "ms")
    costs = {"one execution with a new script": execution["costs"]["steps"]["steps_ms"]}
    guards = execution["costs"]["guards"].get("over_a_fork_ms")
    if guards:
        costs["guards, each alone over a fork"] = guards
    pictures["costs"] = stacked("Where the time goes", costs, "ms")
    for name, picture in pictures.items():
        (PICTURES / f"{name}.svg").write_text(picture)
    return sorted(pictures)


if __name__ == "__main__":
    print(draw(json.loads((HERE / "results.json").read_text())))
