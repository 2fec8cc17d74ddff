"""Links from pages to other files of the repository lead to where it is hosted.

A link is relative to the file that it stands in, also where that is included by a page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class RepositoryLinks(SphinxTransform):
    """Turns `[text](../tests/a.py)` into a link to `repository_url`, and one to a page from an
    included file into one of the site. What does not exist stays: Sphinx warns of it."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        for kind in (addnodes.download_reference, addnodes.pending_xref):
            for link in list(self.document.findall(kind)):
                if link["reftype"] == "myst":
                    self.direct(link)

    def direct(self, link: nodes.Element) -> None:
        pages = Path(self.env.srcdir)
        target, _, anchor = link["reftarget"].partition("#")
        if link.get("refdomain"):  # MyST takes any file in Markdown for a page
            path = (pages / f"{target}.md").resolve()
        else:
            path = (_file_of(link).parent / target).resolve()
        if not target or not path.exists():
            return
        if not path.is_relative_to(pages):
            place = path.relative_to(pages.parent).as_posix()
            uri = f"{self.config.repository_url}/{place}"
            link.replace_self(nodes.reference("", "", *link.children, refuri=uri))
        elif not link.get("refdomain") and (page := self.env.path2doc(path)):
            link["refdomain"], link["reftarget"], link["reftargetid"] = "doc", page, anchor or None


def _file_of(node: nodes.Node) -> Path:
    """The file that a node was read from."""
    while node.source is None and node.parent is not None:
        node = node.parent
    return Path(str(node.source)).resolve()


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_config_value("repository_url", "", "env")
    app.add_transform(RepositoryLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
