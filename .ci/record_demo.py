"""Run the demo on the emulator and write its output as an animated picture: `bash .ci/run recording`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from workers_ai._demo.run import run

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "demo.svg"
COLUMNS, ROWS = 100, 26
FIRST, LINE_S, HEADING_S, END_S = 4, 0.2, 1.5, 6.0
ROW_PX = 24.4
"""Height of a line in the pictures of rich."""

# rich replaces the names in single braces, this script those in angle brackets. No font is downloaded.
FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} <height>" role="img">
<title>workers-ai demo</title>
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }}
{styles}
.scroll {{ animation: scroll <total>s step-end infinite; }}
.cover {{ animation: cover <total>s step-end infinite; transform: translateY(<window>px); }}
@keyframes scroll {{ <scroll> }}
@keyframes cover {{ <cover> }}
@media (prefers-reduced-motion: reduce) {{ .scroll, .cover {{ animation: none; }} }}
</style>
<defs><clipPath id="window"><rect width="{terminal_width}" height="<window>"/></clipPath>{lines}</defs>
<rect width="{width}" height="<height>" rx="8" fill="#1e1e1e"/>
<g transform="translate(20, 20)"><circle r="7" fill="#ff5f57"/><circle cx="22" r="7" fill="#febc2e"/>
<circle cx="44" r="7" fill="#28c840"/></g>
<g transform="translate(9, 41)" clip-path="url(#window)">
<g class="scroll"><g class="{unique_id}-matrix">{matrix}</g></g>
<rect class="cover" width="{terminal_width}" height="<window>" fill="#1e1e1e"/>
</g>
</svg>
"""


def main() -> None:
    """Record the demo."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), highlight=False, color_system="truecolor")
    console.print("$ workers-ai demo")
    run(live=False, console=console)
    template = template_of(console.export_text(clear=False).splitlines())
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(console.export_svg(code_format=template, unique_id="demo"), encoding="utf-8")


def template_of(lines: list[str]) -> str:
    """Return a template for rich: a window whose lines appear one by one, and that then scrolls."""
    times = list(appearances(lines))
    total = times[-1] + END_S
    shares = [100 * time / total for time in times]
    cover = [
        f"{share:.2f}% {{{{ transform: translateY({row * ROW_PX:.1f}px); }}}}" for row, share in enumerate(shares, 1)
    ]
    scroll = [
        f"{share:.2f}% {{{{ transform: translateY({-row * ROW_PX:.1f}px); }}}}"
        for row, share in enumerate(shares[ROWS:], 1)
    ]
    values = {
        "height": ROWS * ROW_PX + 50,
        "window": ROWS * ROW_PX,
        "total": total,
        "cover": " ".join(cover[FIRST - 1 : ROWS]),
        "scroll": " ".join(["0% {{ transform: none; }}", *scroll]),
    }
    template = FORMAT
    for name, value in values.items():
        template = template.replace(f"<{name}>", value if isinstance(value, str) else f"{value:g}")
    return template


def appearances(lines: list[str]) -> Iterator[float]:
    """Yield the second at which each line appears: the first four at once, each heading after a pause."""
    seconds, before = 0.0, "-"
    for number, line in enumerate(lines):
        if number >= FIRST:
            seconds += LINE_S if before.strip() else HEADING_S
        before = line
        yield seconds


if __name__ == "__main__":
    main()
