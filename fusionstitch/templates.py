"""Templates that a user gives for patterns: checked once, and immutable afterwards."""

from __future__ import annotations

from typing import Any, NoReturn

from fusionstitch.hlo.errors import OptionError, TemplateSyntaxError


class Templates(dict[str, str]):
    """Template texts by kernel name. Raises OptionError for an invalid template."""

    def __init__(self, given: object = ()) -> None:
        try:
            super().__init__(given)  # type: ignore[call-overload]
        except (TypeError, ValueError):
            raise OptionError(
                f"Options.templates is {given!r}; it takes a mapping from the names of kernels to "
                "the texts of templates."
            ) from None
        if not self:
            return
        from fusionstitch.codegen.schedule.parser import parse_template  # seldom needed
        from fusionstitch.codegen.while_loops.generate import form_of

        for name, text in self.items():
            if not (isinstance(name, str) and isinstance(text, str)):
                raise OptionError(
                    f"Options.templates has {name!r}: {text!r}; it takes strings, the text of a "
                    "template by the name of a kernel."
                )
            if form_of(text):
                continue
            try:
                parse_template(text)
            except TemplateSyntaxError as error:
                raise OptionError(f"Options.templates, {name!r}: {error}") from None

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Templates, (dict(self),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("Options are not changed once they are made: use Options.replace.")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse
