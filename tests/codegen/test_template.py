"""Templates: the paper's examples, exact round trips, and errors with line and column."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionstitch.codegen.schedule.parser import parse_attrs, parse_template
from fusionstitch.codegen.schedule.template import (
    CLAUSES,
    HEADER,
    Attr,
    Block,
    Level,
    Loop,
    Schedule,
    SubAttr,
    Template,
    attr,
)
from fusionstitch.hlo.errors import TemplateSyntaxError


@pytest.mark.parametrize(
    ("text", "attrs", "shared"),
    [
        ("[GRID,WARP,WARP,CTA]S", (attr("GRID"), attr("WARP"), attr("WARP"), attr("CTA")), True),
        (
            "[GRID_128-WARP_2,WARP,WARP,CTA]S",
            (
                Attr((SubAttr(Level.GRID, 128), SubAttr(Level.WARP, 2))),
                attr("WARP"),
                attr("WARP"),
                attr("CTA"),
            ),
            True,
        ),
        ("[GRID,CTA,CTA,THREAD]", (attr("GRID"), attr("CTA"), attr("CTA"), attr("THREAD")), False),
    ],
)
def test_the_examples_of_the_paper(text, attrs, shared):
    assert parse_attrs(text) == (attrs, shared)
    schedule = Schedule("reduce_1", attrs, shared)
    assert str(schedule) == f"reduce_1{text};"
    assert parse_template(str(schedule)) == Template((schedule,))


def test_header_and_several_schedules():
    text = (
        "cta_num=16384;\n"
        "cta_size=256;\n"
        "dot_1[GRID,WARP,CTA]S;\n"
        "add[GRID_128-WARP_2,CTA]S;\n"
        "reduce-max.3[GRID,CTA,THREAD];"
    )
    template = parse_template(text)
    assert (template.cta_num, template.cta_size) == (16384, 256)
    assert [s.identifier for s in template.schedules] == ["dot_1", "add", "reduce-max.3"]
    assert [s.shared for s in template.schedules] == [True, True, False]
    assert str(template) == text


def test_blanks_may_stand_anywhere_between_symbols():
    spread = " cta_size = 64 ;\n a [ GRID_4 - CTA_2 , THREAD ] S ;\n\tb[CTA];\n"
    assert str(parse_template(spread)) == "cta_size=64;\na[GRID_4-CTA_2,THREAD]S;\nb[CTA];"


def test_an_op_may_be_called_like_a_header():
    assert str(parse_template("cta_num[CTA];")) == "cta_num[CTA];"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected an identifier, found the end"),
        ("a[GRID]", r"line 1, column 8: expected 'S', 'R', 'G' or ';', found the end"),
        ("a[GRID]S", r"line 1, column 9: expected ';', found the end"),
        ("a[GRID,\n  BLOCK];", "line 2, column 3: expected GRID, WARP, CTA or THREAD, found 'B'"),
        ("a[GRID_4-WARP];", "line 1, column 14: expected '_', found ']'"),
        ("a[GRID-WARP_2];", r"line 1, column 7: expected ',' or '\]', found '-'"),
        ("a[GRID_0];", "line 1, column 8: expected a positive integer, found '0'"),
        ("a[];", r"line 1, column 3: expected GRID, WARP, CTA or THREAD, found '\]'"),
        ("a[CTA]; 7", "line 1, column 9: expected an identifier, found '7'"),
        ("cta_size=many; a[CTA];", "line 1, column 10: expected a positive integer, found 'm'"),
    ],
)
def test_errors_say_where_and_what_was_expected(text, message):
    with pytest.raises(TemplateSyntaxError, match=message):
        parse_template(text)


def test_the_short_form_ends_after_the_attrs():
    with pytest.raises(TemplateSyntaxError, match="column 6: expected the end, found ';'"):
        parse_attrs("[CTA];")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Template(()), "needs at least one schedule"),
        (lambda: Template((Schedule("a", (attr("CTA"),)),), cta_size=0), "at least 1"),
        (lambda: Schedule("a", ()), "Schedule a has no attr"),
        (lambda: Schedule("2a", (attr("CTA"),)), "'2a' is no identifier"),
        (lambda: SubAttr(Level.CTA, 0), "must be at least 1"),
        (lambda: Attr((SubAttr(Level.GRID), SubAttr(Level.CTA, 2))), "'GRID-CTA_2' is no attr"),
    ],
)
def test_what_has_no_text_cannot_be_built(build, message):
    with pytest.raises(TemplateSyntaxError, match=message):
        build()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cta_num=1; cta_num=2; a[CTA];", "line 1, column 12: expected cta_num once, found 'c'"),
        ("group; a[CTA];", "line 1, column 8: expected 'loop', found 'a'"),
        ("group; loop team; a[CTA];", "column 17: expected '=', found ';'"),
        ("group; loop team=1, team=2; a[CTA];", "column 21: expected ';' or another of stream, "),
        ("group; loop teams=1; a[CTA];", "column 13: expected ';' or another of stream, tensor"),
        ("group tiles=1; loop; a[CTA];", "column 7: expected 'tile', found 't'"),
        ("group; loop; a[CTA]; grid; a[CTA];", "column 28: expected 'group', found 'a'"),
        ("group; loop; a[CTA]; split a into 2;", "column 22: expected 'grid', found 's'"),
        ("split a in 2; a[CTA];", "column 9: expected 'into', found 'i'"),
        ("a[CTA]SR;", "column 8: expected ';', found 'R'"),
        ("a#0[CTA];", r"column 2: expected '\['|found '#'"),
        ("group; loop run=2; a[CTA];", "run is a clause of register tiles"),
    ],
)
def test_errors_of_groups_and_loops(text, message):
    with pytest.raises(TemplateSyntaxError, match=message):
        parse_template(text)


def test_ops_may_be_called_like_the_words_of_the_grammar():
    words = ("group", "loop", "grid", "split", "stream")
    text = "group tile=2;\nloop;\n" + "\n".join(f"{word}[CTA];" for word in words)
    assert [s.identifier for s in parse_template(text).schedules] == list(words)
    assert str(parse_template(text)) == text


def test_no_bound_on_resident_blocks_is_a_word():
    assert parse_template("cta_per_sm=any; a[CTA];").cta_per_sm == 0
    assert str(parse_template("cta_per_sm=0;a[CTA];")) == "cta_per_sm=any;\na[CTA];"


LEVELS = st.sampled_from(Level)
EXTENTS = st.integers(1, 10**9)
ATTRS = st.one_of(
    LEVELS.map(lambda level: Attr((SubAttr(level),))),
    st.lists(st.builds(SubAttr, LEVELS, EXTENTS), min_size=1, max_size=4).map(
        lambda parts: Attr(tuple(parts))
    ),
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,12}(#[1-9][0-9]?)?(#copy)?", fullmatch=True)
SCHEDULES = st.builds(
    Schedule,
    NAMES,
    st.lists(ATTRS, min_size=1, max_size=5).map(tuple),
    st.booleans(),
    st.just(False),
    st.booleans(),
)
SEVERAL = st.lists(SCHEDULES, min_size=1, max_size=4).map(tuple)
LOOPS = st.one_of(
    st.builds(
        lambda lines, clauses: Loop(lines, **clauses),
        SEVERAL,
        st.dictionaries(st.sampled_from(("team", "columns")), EXTENTS),
    ),
    st.builds(
        lambda lines, clauses: Loop(lines, tensor=True, **clauses),
        SEVERAL,
        st.dictionaries(st.sampled_from(tuple(CLAUSES)), EXTENTS),
    ),
)
BLOCKS = st.builds(Block, st.lists(LOOPS, min_size=1, max_size=3).map(tuple), st.none() | EXTENTS)
PHASES = st.lists(st.lists(BLOCKS, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(
    tuple
)
HEADS = st.fixed_dictionaries(
    {
        **{name: st.none() | st.integers(least, 10**9) for name, least in HEADER.items()},
        "splits": st.lists(st.tuples(NAMES, EXTENTS), max_size=2).map(tuple),
    }
)
TEMPLATES = st.one_of(
    st.builds(lambda flat, head: Template(flat, **head), SEVERAL, HEADS),
    st.builds(lambda phases, head: Template(phases=phases, **head), PHASES, HEADS),
)


@settings(max_examples=200, deadline=None)
@given(TEMPLATES)
def test_print_then_parse_is_the_identity(template):
    text = str(template)
    assert parse_template(text) == template
    assert str(parse_template(text)) == text
