"""Write the address of the repository into the published files: `python3 .ci/set_links.py URL REF`.

Links of the packages' READMEs are relative in the repository. On a package index they must be absolute, and each
package needs links to its source, changelog and issues.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def main(url: str, ref: str) -> None:
    """Change the README and the pyproject.toml of every package."""
    for readme in sorted(ROOT.glob("libs/*/README.md")):
        folder = f"libs/{readme.parent.name}"
        text = readme.read_text(encoding="utf-8")
        readme.write_text(
            LINK.sub(lambda link, at=folder: _absolute(link, f"{url}/blob/{ref}", at), text), encoding="utf-8"
        )
        project = readme.with_name("pyproject.toml")
        urls = {"Source": url, "Changelog": f"{url}/blob/{ref}/CHANGELOG.md", "Issues": f"{url}/issues"}
        lines = "".join(f'{name} = "{link}"\n' for name, link in urls.items())
        source = project.read_text(encoding="utf-8")
        if "[project.urls]" not in source:
            source = source.replace("\n[tool.hatch.version]", f"\n[project.urls]\n{lines}\n[tool.hatch.version]", 1)
        project.write_text(source, encoding="utf-8")


def _absolute(link: re.Match[str], base: str, folder: str) -> str:
    path = posixpath.normpath(f"{folder}/{link[1]}")
    return f"]({base}/{path}{link[2] or ''})"


if __name__ == "__main__":
    main(*sys.argv[1:])
