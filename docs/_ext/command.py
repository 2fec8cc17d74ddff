"""`{command} report`: usage and options of a subcommand, from the parser that reads them."""

from __future__ import annotations

import argparse
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fusionstitch.commands.cli import command_line


class Command(SphinxDirective):
    """Each argument becomes an `{option}`, which pages can link to and the search finds."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name, known = self.arguments[0], subcommands()
        if name not in known:
            raise self.error(f"fusionstitch has no command {name}; it has {', '.join(known)}.")
        parser = known[name]
        form = argparse.HelpFormatter(parser.prog, width=88)
        form.add_usage(None, parser._actions, parser._mutually_exclusive_groups, prefix="")
        parts = [f"```text\n{form.format_help()}```", f"```{{program}} {parser.prog}\n```"]
        for one in parser._actions:
            if not isinstance(one, argparse._HelpAction):
                head = form._format_action_invocation(one)
                body = re.sub(r"(?<!\S)--\w+", r"`\g<0>`", form._expand_help(one))
                parts.append(f"```{{option}} {head}\n{body}\n```")
        return self.parse_text_to_nodes("\n\n".join(parts))


def subcommands() -> dict[str, argparse.ArgumentParser]:
    """The parsers of the subcommands, by name."""
    actions = command_line()._actions
    (commands,) = (one for one in actions if isinstance(one, argparse._SubParsersAction))
    return dict(commands.choices)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("command", Command)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
