"""Run two notebooks and save their figures for the documentation: `bash .ci/run recording`."""

from __future__ import annotations

import base64
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
FIGURES = {"capacity": ["capacity-policies", "capacity-callers"], "rag_over_the_queue": ["map-of-docstrings"]}
"""Names of the pictures, by notebook and in the order of its figures."""


def main() -> None:
    """Save the figures in ``docs/images``."""
    for notebook, names in FIGURES.items():
        cells = nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4)
        NotebookClient(cells, timeout=120).execute()
        outputs = (output for cell in cells.cells for output in cell.get("outputs", []))
        pictures = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
        for name, picture in zip(names, pictures, strict=True):
            (ROOT / "docs" / "images" / f"{name}.png").write_bytes(base64.b64decode(picture))


if __name__ == "__main__":
    main()
