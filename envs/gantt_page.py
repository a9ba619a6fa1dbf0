"""The HTML page of a Gantt chart: inline SVG, style and script, no request to anywhere."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any

from hetsched.envs.gantt_layout import GREY, LATE, LATE_HEIGHT, Layout, is_dark, short_labels

if TYPE_CHECKING:
    from hetsched.envs.instance import Instance

LEFT, WIDTH, ROW, AXIS = 130, 1000, 34, 34  # in units of the SVG's view box

# The policy in the head makes the browser refuse any request; the script writes text, never HTML.
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #222; --soft: #666; --line: #e6e6e6; --page: #fff; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #eee; --soft: #aaa; --line: #3a3a3a; --page: #1b1b1b; }}
}}
body {{ margin: 24px; background: var(--page); color: var(--ink);
  font: 14px/1.4 system-ui, sans-serif; }}
h1 {{ margin: 0; font-size: 20px; }}
p {{ margin: 2px 0 14px; color: var(--soft); }}
svg {{ width: 100%; height: auto; }}
svg text {{ font: 12px system-ui, sans-serif; fill: var(--ink); dominant-baseline: central; }}
svg .machine {{ text-anchor: end; }}
svg .tick {{ text-anchor: middle; fill: var(--soft); }}
svg .label {{ text-anchor: middle; font-size: 11px; pointer-events: none; }}
svg .light {{ fill: #fff; }}
svg .dark {{ fill: #222; }}
svg .grid {{ stroke: var(--line); }}
svg .stripe {{ fill: var(--page); opacity: .7; }}
svg .bar {{ stroke: var(--page); stroke-width: 1; }}
svg .plan {{ fill: none; stroke: var(--ink); stroke-dasharray: 3 2; stroke-width: 1.2;
  pointer-events: none; }}
svg .late {{ pointer-events: none; }}
svg .bar:hover {{ filter: brightness(1.15); stroke: var(--ink); }}
.legend span {{ display: inline-block; margin-right: 18px; }}
.legend i {{ display: inline-block; width: 12px; height: 12px; margin-right: 6px;
  vertical-align: -1px; box-sizing: border-box; }}
#tip {{ position: fixed; display: none; pointer-events: none; padding: 8px 10px;
  white-space: pre; border-radius: 6px; background: #222; color: #fff;
  font: 12px/1.4 ui-monospace, monospace; box-shadow: 0 2px 8px #0006; z-index: 1; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{summary}</p>
{svg}
<p class="legend">{legend}</p>
<div id="tip"></div>
<script>
const tip = document.getElementById("tip");
for (const bar of document.querySelectorAll(".bar")) {{
  bar.addEventListener("pointermove", (event) => {{
    tip.textContent = bar.dataset.tip;
    tip.style.display = "block";
    const right = innerWidth - tip.offsetWidth - 8, low = innerHeight - tip.offsetHeight - 8;
    tip.style.left = Math.min(event.clientX + 14, right) + "px";
    tip.style.top = Math.min(event.clientY + 14, low) + "px";
  }});
  bar.addEventListener("pointerleave", () => {{ tip.style.display = "none"; }});
}}
</script>
</body>
</html>
"""


def make_page(layout: Layout, instance: Instance, title: str) -> str:
    """The page as text; every name in it is escaped."""
    return PAGE.format(
        title=html.escape(title),
        summary=html.escape(layout.summary),
        legend=_legend(layout, instance),
        svg=_svg(layout, instance),
    )


def _svg(layout: Layout, instance: Instance) -> str:
    height = ROW * float(layout.tops[-1])
    scale = WIDTH / (layout.last - layout.first)

    def at(time: float) -> float:
        return LEFT + (time - layout.first) * scale

    parts = [
        f'<svg viewBox="0 0 {LEFT + WIDTH + 20} {height + AXIS:g}" role="img" '
        'aria-label="Gantt chart">',
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="3" height="6" class="stripe"/></pattern>'
        "</defs>",
    ]
    for tick in _ticks(layout.first, layout.last):
        x = f"{at(tick):.2f}"
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="{height:g}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{height + 18:g}">{tick:g}</text>')
    for machine, name in enumerate(instance.machine_names):
        top, bottom = ROW * layout.tops[machine], ROW * layout.tops[machine + 1]
        label = html.escape(name if len(name) <= 18 else name[:17] + "…")
        parts.append(
            f'<text class="machine" x="{LEFT - 10}" y="{(top + bottom) / 2:g}">{label}</text>'
            f'<line class="grid" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{bottom:g}" y2="{bottom:g}"/>'
        )
        available = float(instance.machine_available[machine])
        if available > 0:
            parts.append(
                _rect(
                    at(0.0),
                    at(available),
                    top + 3,
                    bottom - 3,
                    f'fill="{GREY}" class="bar"',
                    _tip("initial occupation", [("machine", name), ("until", available)]),
                )
            )
    for bar in layout.bars:
        job, colour = bar.job, layout.colours[bar.job]
        low, high = ROW * bar.low, ROW * bar.high
        gap = min(3.0, 0.15 * (high - low))
        low, high = low + gap, high - gap
        rows: list[tuple[str, Any]] = [
            ("machine", instance.machine_names[bar.machine]),
            ("start", bar.start),
            ("end", bar.end),
            ("duration", bar.end - bar.start),
            ("weight", float(instance.weights[job])),
            ("tardiness", float(layout.tardiness[job])),
        ]
        planned = math.nan if layout.planned is None else float(layout.planned[job])
        if math.isfinite(planned):
            rows.insert(3, ("planned end", planned))
        if bar.setup > 0:
            rows.insert(1, ("set-up", bar.setup))
            begin = at(bar.start - bar.setup)
            parts.append(_rect(begin, at(bar.start), low, high, f'fill="{colour}" opacity=".35"'))
            parts.append(_rect(begin, at(bar.start), low, high, 'fill="url(#hatch)"'))
        start, end = at(bar.start), at(bar.end)
        parts.append(
            _rect(
                start,
                end,
                low,
                high,
                f'fill="{colour}" class="bar"',
                _tip(instance.job_names[job], rows),
            )
        )
        if math.isfinite(planned):
            parts.append(_rect(start, at(planned), low, high, 'class="plan"'))
        if layout.tardiness[job] > 0:
            stripe = high - min(ROW * LATE_HEIGHT, 0.2 * (high - low))
            parts.append(_rect(start, end, stripe, high, f'fill="{LATE}" class="late"'))
        room = (end - start) / 7  # characters
        fitting = [one for one in short_labels(instance.job_names[job]) if len(one) <= room]
        if fitting and high - low > 10:
            shade = "light" if is_dark(colour) else "dark"
            parts.append(
                f'<text class="label {shade}" x="{(start + end) / 2:.2f}" '
                f'y="{(low + high) / 2:.2f}">{html.escape(fitting[0])}</text>'
            )
    return "\n".join([*parts, "</svg>"])


def _rect(
    left: float, right: float, top: float, bottom: float, style: str, tip: str | None = None
) -> str:
    data = "" if tip is None else f' data-tip="{html.escape(tip)}"'
    return (
        f'<rect x="{left:.2f}" y="{top:.2f}" width="{max(right - left, 0.0):.2f}" '
        f'height="{bottom - top:.2f}" {style}{data}/>'
    )


def _tip(heading: str, rows: list[tuple[str, Any]]) -> str:
    """Lines of the box at the pointer."""
    lines = [heading]
    for label, value in rows:
        shown = f"{value:.6g}" if isinstance(value, float) else value
        lines.append(f"{label:<11}  {shown}")
    return "\n".join(lines)


def _legend(layout: Layout, instance: Instance) -> str:
    entries = [(label, f"background:{colour}") for label, colour in layout.legend]
    if any(bar.setup > 0 for bar in layout.bars):
        stripes = "repeating-linear-gradient(135deg,#888 0 2px,transparent 2px 5px)"
        entries.append(("set-up", f"background:{stripes}"))
    if layout.planned is not None:
        entries.append(("planned", "border:1.2px dashed var(--ink)"))
    if (instance.machine_available > 0).any():
        entries.append(("initial occupation", f"background:{GREY}"))
    if (layout.tardiness > 0).any():
        entries.append(("late", f"background:{LATE};height:4px;vertical-align:3px"))
    return "".join(
        f'<span><i style="{style}"></i>{html.escape(label)}</span>' for label, style in entries
    )


def _ticks(first: float, last: float) -> list[float]:
    """About ten round times."""
    rough = (last - first) / 10
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    start, stop = math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9)
    return [index * step for index in range(start, stop + 1)]
