"""What others wrote, as parts of C text: comments and identifiers."""

from __future__ import annotations

import functools
import itertools

from fusionstitch.hlo import foreign

COMMENT = "//"
#: Characters of an identifier before what makes it unique.
MOST_CHARACTERS = 64
#: How names begin that are ours, or those of headers.
_THEIRS = ("fs_", "Fs", "cuda", "nv")


def comment(text: str) -> str:
    """A line that no compiler reads, whatever `text` holds: others may have written parts of it."""
    return f"{COMMENT} {foreign.line(text)}".rstrip()


#: By these a line may be no comment that looks like one, or end elsewhere: parts of strings, of
#: longer comments, of joined lines.
_UNSURE = ("\\", "??/", 'R"', "/*", "\r")


def uncommented(source: str) -> str:
    """What a compiler reads of `source`, line by line: comments name the user's files and lines,
    which change while the code stays. Lines that are comments are empty; all others have their
    numbers and text. Generated code has no other comments and no strings over several lines;
    where `source` might have, it stays as it is.
    """
    if any(word in source for word in _UNSURE):
        return source
    lines = source.split("\n")
    return "\n".join("" if line.lstrip(" \t").startswith(COMMENT) else line for line in lines)


@functools.lru_cache(maxsize=1 << 14)  # kernels that are drafted have most of their names in common
def identifier(hint: str) -> str:
    """A C identifier like `hint` that is no keyword, no macro, and no name that generated code uses
    without getting it from a `Writer`."""
    runs = itertools.groupby(hint[: 2 * MOST_CHARACTERS], lambda c: c.isascii() and c.isalnum())
    words = ("".join(run) if is_plain else "_" for is_plain, run in runs)
    name = "".join(words)[:MOST_CHARACTERS].strip("_") or "value"
    return f"v_{name}" if name in RESERVED or _is_theirs(name) else name


def _is_theirs(name: str) -> bool:
    """Whether a name begins as those of headers and of generated code do, or as macros, which are
    capitals and digits."""
    macro = name[0].isupper() and name[1:2] and not name[1].islower()
    return name[0].isdigit() or bool(macro) or name.startswith(_THEIRS)


_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires restrict return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true
try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while xor
xor_eq

bf16 f16 f8e5m2 f8e4m3 f8e4m3fn f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz f8e3m4 int8_t int16_t int32_t
int64_t uint8_t uint16_t uint32_t uint64_t size_t shared_memory step main threadIdx blockIdx
blockDim gridDim warpSize

abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh div erf erfc erfinv exp
exp10 exp2 expm1 fabs floor fma fmax fmin fmod frexp gamma hypot index isfinite isinf isnan j0 j1
jn ldexp lgamma log log10 log1p log2 logb max memcpy memset min modf nearbyint pow powi remainder
rint round rsqrt signbit signgam sin sincos sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn

alloca assert environ errno linux i386 math_errhandling offsetof sa_handler sa_sigaction
sched_priority si_addr si_addr_lsb si_arch si_band si_call_addr si_fd si_int si_lower si_overrun
si_pid si_pkey si_ptr si_status si_stime si_syscall si_timerid si_uid si_upper si_utime si_value
sigev_notify_attributes sigev_notify_function st_atime st_ctime st_mtime stderr stdin stdout unix
"""
#: Names that mean something else in C++, in the device header, in what generated code calls, or in
#: the C library's macros; with the single-precision names of C's functions: expf, logf, ...
RESERVED = frozenset(word + end for word in _WORDS.split() for end in ("", "f"))
